"""Shares, proofs and answers as bytes, and the same ballots by an independent reference."""

import hashlib

import numpy as np
from reference.prio3 import Prio3SumVec

from urna.protocols.ballots import BallotLayout, Codec
from urna.protocols.ballots.codec import HELPER, LEADER
from urna.randomness import ScriptedSecrets

KEY = bytes(range(32))
LAYOUT = BallotLayout(5)
BALLOTS = np.random.default_rng(5).integers(0, 4, (8, 5))
CHEATS = {2: 2, 5: 100}  # who adds what to one bit of its ballot


def counted(cheats: dict[int, int]) -> tuple[list[bool], list[int]]:
    """Whose ballot Urna accepts, and the sum of those."""
    codec, secrets = Codec(LAYOUT), ScriptedSecrets(b"reference")
    shards = []
    for client, ballot in enumerate(BALLOTS):
        bits = LAYOUT.encode(ballot).astype(np.int64)
        bits[0] += cheats.get(client, 0)
        shards.append(codec.share(bits, secrets))
    leader = codec.examine(LEADER, KEY, [each.leader for each in shards])
    helper = codec.examine(HELPER, KEY, [each.helper for each in shards])
    valid = leader.decide(helper.answers)
    assert valid.tolist() == helper.decide(leader.answers).tolist()
    shares = (party.exact_share(np.flatnonzero(valid).tolist()) for party in (leader, helper))
    return valid.tolist(), [(a + b) % codec.modulus for a, b in zip(*shares, strict=True)]


def counted_by_the_reference(cheats: dict[int, int]) -> tuple[list[bool], list[int]]:
    """The same, by the standard's scheme."""
    vdaf, secrets, context = Prio3SumVec(5, 3, 3), ScriptedSecrets(b"reference"), b"votes"
    nonces = [secrets.take(vdaf.nonce_size) for _ in BALLOTS]
    rands = [secrets.take(vdaf.rand_size) for _ in BALLOTS]
    publics, shares, helpers = zip(
        *vdaf.shard(context, BALLOTS.tolist(), nonces, rands), strict=True
    )
    leaders = list(shares)
    for client, amount in cheats.items():
        first = int.from_bytes(leaders[client][:16], "little") + amount
        leaders[client] = first.to_bytes(16, "little") + leaders[client][16:]
    states = [
        vdaf.verify_init(KEY, context, who, nonces, publics, each)
        for who, each in ((LEADER, leaders), (HELPER, helpers))
    ]
    pairs = [(a.verifier_share, b.verifier_share) for a, b in zip(*states, strict=True)]
    seeds = vdaf.verifier_shares_to_message(context, pairs)
    valid = [
        seed is not None and seed == ours.joint_seed == theirs.joint_seed
        for seed, ours, theirs in zip(seeds, *states, strict=True)
    ]
    sums = [
        vdaf.aggregate(state.out_share for state, good in zip(each, valid, strict=True) if good)
        for each in states
    ]
    return valid, vdaf.unshard(sums)


def test_the_reference_accepts_the_same_ballots_and_counts_the_same_sum() -> None:
    assert counted({}) == counted_by_the_reference({}) == ([True] * 8, BALLOTS.sum(axis=0).tolist())
    found = counted(CHEATS)
    assert found == counted_by_the_reference(CHEATS)
    assert [client for client, good in enumerate(found[0]) if not good] == list(CHEATS)


def test_shares_and_answers_keep_their_bytes() -> None:
    codec, secrets = Codec(LAYOUT), ScriptedSecrets(b"wire")
    shards = [codec.shard(np.array([0, 1, 2, 3, 0]), secrets) for _ in range(2)]
    written = [part for each in shards for part in (each.leader, each.helper)]
    for who, shares in ((LEADER, written[::2]), (HELPER, written[1::2])):
        written += codec.examine(who, KEY, shares).answers
    assert [len(part) for part in written] == [112, 32] * 2 + [24] * 4
    assert hashlib.sha256(b"".join(written)).hexdigest() == (
        "e86e1f4c063d9c778a1adf6b43a85401a7a1c516d3d80f74d27af420c8a741fb"
    )
