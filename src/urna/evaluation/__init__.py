"""What studies need and no search imports: federated training of all candidates, agreement.

Nothing here is private. Importing this package does not import torch.
"""

from urna.evaluation.agreement import BallotAgreement, ballot_agreement
from urna.evaluation.federated import FederatedScores, federated_averaging

__all__ = ["BallotAgreement", "FederatedScores", "ballot_agreement", "federated_averaging"]
