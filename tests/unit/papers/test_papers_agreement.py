import numpy as np
import pytest
from benchmarks.papers.agreement import ballot_agreement

from urna.errors import ParameterError


def test_agreement_counts_ties_as_the_same() -> None:
    full = np.array([[0.1, 0.1, 0.3], [0.3, 0.2, 0.1]])
    raced = np.array([[np.inf, 0.1, 0.3], [0.1, 0.2, np.inf]])
    agreement = ballot_agreement(full, raced, votes=1)
    assert agreement.same_first == 0.5
    assert agreement.same_ballot == 0.5
    assert agreement.clients == 2


def test_agreement_refuses_what_does_not_match() -> None:
    with pytest.raises(ParameterError, match="shape"):
        ballot_agreement(np.zeros((2, 3)), np.zeros((2, 4)), votes=1)
    with pytest.raises(ParameterError, match="votes"):
        ballot_agreement(np.zeros((2, 3)), np.zeros((2, 3)), votes=4)
