"""What a client refuses, and what the server would have gained had it answered."""

import hashlib
from collections.abc import Callable
from dataclasses import fields, replace
from fractions import Fraction

import numpy as np
import pytest
from secagg_play import COIN, Play, ballots, rebuild, small_plan, summed, unmask_alone

from urna.errors import ParameterError, ProtocolError, RoundAborted
from urna.protocols import secagg
from urna.protocols.secagg import client as stages
from urna.protocols.secagg import server
from urna.protocols.secagg.client import BadShares, _check_lists
from urna.protocols.secagg.keys import Identity, KeyPair, channel_keys, unseal
from urna.protocols.secagg.messages import (
    Advertisement,
    AgreeRequest,
    Invitation,
    KeyBook,
    Parts,
    ShareBox,
    UnmaskRequest,
    lists_digest,
)
from urna.protocols.secagg.shares import KEY, SEED
from urna.protocols.secagg.wire import decode, encode, without_signature
from urna.randomness import ScriptedSecrets

NOBODY = Parts.of({}, 64)
"""No signatures: the server is honest-but-curious."""


def reveal(play: Play, client: int, request: UnmaskRequest) -> tuple[dict[int, bytes], ...]:
    """What a client without checks would hand over, and that a real one does not."""
    bundles = play.masked[client].bundles
    seeds = {p: b[32:64] for p, b in bundles.items() if p in request.survivors}
    keys = {p: b[:32] for p, b in bundles.items() if p in request.dropped}
    with pytest.raises(ProtocolError):
        stages.reveal_shares(play.masked[client], request)
    return seeds, keys


def victim_of(play: Play, seeds: dict[int, bytes], keys: dict[int, bytes]) -> None:
    """Show that both secrets of client 0 give away its vector."""
    seed, key = rebuild(play, 0, seeds), rebuild(play, 0, keys)
    np.testing.assert_array_equal(unmask_alone(play, 0, seed, key), play.vectors[0])


def test_overlapping_lists_would_give_one_vector_away() -> None:
    play = Play(small_plan()).to_vectors()
    request = replace(play.request(), dropped=frozenset({0}))
    seeds, keys = {}, {}
    for peer in play.neighbours[0]:
        given = reveal(play, peer, request)
        seeds[peer], keys[peer] = given[0][0], given[1][0]
    victim_of(play, seeds, keys)
    with pytest.raises(ProtocolError, match="survivors and as dropped"):
        stages.reveal_shares(play.masked[play.neighbours[0][0]], request)


def test_a_second_request_with_other_lists_would_give_one_vector_away() -> None:
    play = Play(small_plan()).to_vectors()
    honest = play.request()
    second = replace(honest, survivors=honest.survivors - {0}, dropped=frozenset({0}))
    vectors, seeds, keys = ballots(play.plan), {}, {}
    for peer in play.neighbours[0]:
        # The state after the first answer holds no shares: there is nothing to answer with.
        finished, reply = stages.reveal_shares(play.masked[peer], honest)
        assert finished == stages.Finished(play.round_id)
        seeds[peer] = reply.survivors[0][:32]  # the rest are digests
        # A client that kept its old state would answer the second request as well.
        keys[peer] = stages.reveal_shares(play.masked[peer], second)[1].dropped[0][:32]
    victim_of(play, seeds, keys)

    # A session keeps no old state: the first answer again, or nothing.
    session = session_after_vector(play, 1, vectors)
    first = session.handle(encode(honest, play.plan))
    assert session.handle(encode(honest, play.plan)) == first
    refusal = decode(session.handle(encode(second, play.plan)), play.plan)
    assert "Finished does not wait for UnmaskRequest" in refusal.reason  # type: ignore[union-attr]


def session_after_vector(
    play: Play, client: int, vectors: dict[int, np.ndarray]
) -> secagg.ClientSession:
    source = ScriptedSecrets(play.label + b"%d" % client)
    Identity.draw(client, source)
    session = secagg.ClientSession(play.members[client], vectors[client], source)
    for message in (play.invitation, play.books[client], play.boxes[client]):
        answer = decode(without_signature(session.handle(encode(message, play.plan))), play.plan)
    assert answer == play.sent[client]
    return session


def test_a_shrunken_survivor_set_would_give_a_small_sum_away() -> None:
    play = Play(small_plan(clients=9)).to_vectors()
    few = frozenset({0, 1})
    request = UnmaskRequest(play.round_id, few, frozenset(range(9)) - few, NOBODY)
    with pytest.raises(ProtocolError, match="fewer than 7"):
        stages.reveal_shares(play.masked[0], request)
    # Had all answered, the sum of two clients would stand alone.
    replies = {}
    for client in play.masked:
        bundles = play.masked[client].bundles
        replies[client] = server.UnmaskReply(
            play.round_id,
            client,
            stages._shares_of(bundles, few, [SEED]),
            stages._shares_of(bundles, request.dropped, [KEY]),
        )
    two = server.Summed(
        play.routed,
        few,
        request.dropped,
        summed(
            replace(play.routed, plan=replace_least(play.plan)),
            {c: play.sent[c] for c in few},
        ).total,
    )
    total = server.unmask(two, replies).total
    np.testing.assert_array_equal(total, play.vectors[0] + play.vectors[1])


def replace_least(plan: secagg.Plan) -> secagg.Plan:
    """The same plan for a server that does not care how many are left."""
    loose = object.__new__(secagg.Plan)
    for field in fields(plan):
        object.__setattr__(loose, field.name, getattr(plan, field.name))
    object.__setattr__(loose, "dropouts", plan.clients)
    return loose


def drop(play: Play, *clients: int) -> UnmaskRequest:
    request = play.request()
    gone = frozenset(clients)
    return replace(request, survivors=request.survivors - gone, dropped=request.dropped | gone)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda play, r: replace(r, round_id=bytes(32)), "another round"),
        (lambda play, r: drop(play, 3), "this client sent its vector"),
        (lambda play, r: drop(play, 0, 1, 2), "fewer than 10"),
        (lambda play, r: replace(r, survivors=r.survivors - {first(play)}), "in neither list"),
        (lambda play, r: replace(r, survivors=r.survivors | {12}), "not in the plan"),
        (lambda play, r: replace(r, dropped=frozenset({-1})), "not in the plan"),
        (lambda play, r: replace(r, dropped=frozenset({12})), "not in the plan"),
        (lambda play, r: replace(r, survivors=frozenset()), "this client sent its vector"),
    ],
    ids=[
        "other round",
        "left out",
        "shrunken",
        "a neighbour in neither",
        "unknown survivor",
        "negative",
        "unknown dropped",
        "nobody",
    ],
)
def test_reveal_shares_refuses(
    change: Callable[[Play, UnmaskRequest], UnmaskRequest], message: str
) -> None:
    play = Play(small_plan()).to_vectors()
    with pytest.raises(ProtocolError, match=message):
        stages.reveal_shares(play.masked[3], change(play, play.request()))


def test_a_client_reveals_nothing_of_a_sum_without_those_it_requires() -> None:
    """A helper's mask is missing from such a sum: it would be exact."""
    plan = small_plan(required=frozenset({11}))
    assert plan.digest != small_plan().digest
    play = Play(plan).to_vectors()
    with pytest.raises(ProtocolError, match="clients 11 must be in the sum"):
        stages.reveal_shares(play.masked[3], drop(play, 11))
    stages.reveal_shares(play.masked[3], drop(play, 10))
    with pytest.raises(ParameterError, match="numbered below 12"):
        small_plan(required=frozenset({12}))


def test_a_server_aborts_without_those_a_plan_requires() -> None:
    plan = small_plan(required=frozenset({11}))
    for stage in (secagg.Stage.ADVERTISE, secagg.Stage.SHARE, secagg.Stage.MASK):
        with pytest.raises(RoundAborted, match="client 11 is lost, without whom"):
            secagg.run(ballots(plan), plan, ScriptedSecrets(b"a"), dropouts={11: stage})


def first(play: Play) -> int:
    return play.neighbours[3][0]


def test_a_survivor_that_never_shared_is_refused() -> None:
    """The server would have noise removed for a client that never added any."""
    play = Play(small_plan()).to_shares()
    ghost = play.neighbours[3][0]
    bundles = {p: b for p, b in play.boxes[3].bundles.items() if p != ghost}
    box = ShareBox(play.round_id, Parts.of(bundles, play.plan.bundle_bytes))
    state, _ = stages.mask_vector(play.shared[3], box, play.vectors[3])
    request = UnmaskRequest(play.round_id, frozenset(range(12)), frozenset(), NOBODY)
    with pytest.raises(ProtocolError, match=f"clients {ghost} are listed and never shared"):
        stages.reveal_shares(state, request)


def test_too_few_surviving_neighbours_are_refused() -> None:
    """Around a client with few listed neighbours the server could close a ring of its own."""
    plan = small_plan(clients=300, colluders=0, dropouts=60)
    invited, _ = server.invite(plan, 1, COIN)
    peers = tuple(invited.neighbours[0].tolist())
    state = stages.Masked(
        secagg.Member(0, plan), invited.round_id, frozenset(peers), dict.fromkeys(peers, b"")
    )
    gone = frozenset(peers[: plan.neighbours - plan.threshold + 1])
    assert len(gone) <= plan.dropouts
    everyone = frozenset(range(300))
    with pytest.raises(ProtocolError, match="the threshold"):
        _check_lists(state, everyone - gone, gone)
    enough = gone - {peers[0]}
    _check_lists(state, everyone - enough, enough)


class TestInvitation:
    def test_replayed_and_reordered_rounds_are_refused(self) -> None:
        play = Play(small_plan())
        source = ScriptedSecrets(b"again")
        member = replace(play.members[0], latest_round=4)
        for number in (3, 4):
            with pytest.raises(ProtocolError, match="replayed or reordered"):
                stages.advertise(member, replace(play.invitation, number=number), source)
        stages.advertise(member, replace(play.invitation, number=5), source)

    def test_a_replayed_round_would_give_the_difference_of_two_vectors_away(self) -> None:
        """With the same secrets, what a client sends twice differs by what changed."""
        one = Play(small_plan()).to_vectors()
        changed = ballots(one.plan)
        changed[0] = changed[0] + 5
        two = Play(small_plan(), vectors=changed).to_vectors()
        words = [np.frombuffer(p.sent[0].words, dtype="<u4") for p in (one, two)]
        assert (words[1] - words[0]).tolist() == [5] * 6

    @pytest.mark.parametrize(
        "other",
        [
            {"dropouts": 1},
            {"colluders": 0},
            {"dimension": 7},
            {"ring_bits": 16},
            {"server": "dishonest"},
            {"noise_variance": Fraction(5)},
        ],
        ids=lambda change: next(iter(change)),
    )
    def test_another_plan_is_refused(self, other: dict[str, object]) -> None:
        """A lower threshold would let colluders rebuild a client's secrets on their own."""
        play = Play(small_plan())
        digest = small_plan(**other).digest  # type: ignore[arg-type]
        with pytest.raises(ProtocolError, match="plans another round"):
            stages.advertise(
                play.members[0], replace(play.invitation, plan_digest=digest), ScriptedSecrets(b"")
            )

    def test_another_coin_is_refused_where_the_client_holds_it(self) -> None:
        """A server that picks coins picks the graph, and with it a victim's neighbours."""
        play = Play(small_plan())
        member = replace(play.members[0], coin=COIN)
        stages.advertise(member, play.invitation, ScriptedSecrets(b""))
        with pytest.raises(ProtocolError, match="coin"):
            stages.advertise(
                member, Invitation(1, b"d" * 32, play.plan.digest), ScriptedSecrets(b"")
            )
        invited = [server.invite(play.plan, 1, bytes([i]) * 32)[0] for i in range(9)]
        graphs = {tuple(state.neighbours[0].tolist()) for state in invited}
        assert len(graphs) > 1


class TestKeyBook:
    def test_a_server_in_the_middle_is_refused_and_would_read_every_share(self) -> None:
        source = ScriptedSecrets(b"middle")
        mine = {c: KeyPair.draw(source) for c in range(12)}

        def forged(play: Play) -> KeyBook:
            entries = [
                Advertisement(
                    play.round_id, p, mine[p].public, KeyPair.draw(source).public, bytes(64)
                )
                for p in play.neighbours[0]
            ]
            return KeyBook(play.round_id, tuple(entries))

        play = Play(small_plan(), signed=True).to_keys()
        with pytest.raises(ProtocolError, match="not signed"):
            stages.share_keys(play.advertised[0], forged(play), source)

        # Without a directory the client cannot know: the server decrypts its secrets.
        play = Play(small_plan()).to_keys()
        book = forged(play)
        state, sealed = stages.share_keys(play.advertised[0], book, source)
        shares = {}
        for peer, bundle in sealed.bundles.items():
            _, key = channel_keys(mine[peer], play.advertisements[0].channel_key, play.round_id)
            sealed_part = bundle[: play.plan.sealed_bytes]
            shares[peer] = unseal(key, sealed_part, play.round_id, 0, peer)[32:64]  # type: ignore[index]
        assert rebuild(play, 0, shares) == state.self_mask_seed

    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda p, b: replace(b, round_id=bytes(32)), "another round"),
            (lambda p, b: replace(b, advertisements=b.advertisements * 2), "twice"),
            (lambda p, b: replace(b, advertisements=b.advertisements[:3]), "at least"),
            (lambda p, b: with_entry(b, p.advertisements[0]), "no neighbours"),
            (lambda p, b: changed(b, signature=b""), "not signed"),
            (lambda p, b: changed(b, signature=bytes(64)), "not signed"),
            (lambda p, b: changed(b, mask_key=b"k" * 32), "not signed"),
            (lambda p, b: changed(b, channel_key=b"k" * 32), "not signed"),
            (lambda p, b: changed(b, round_id=bytes(32)), "another round"),
            (lambda p, b: changed(b, mask_key=b.advertisements[1].mask_key), "twice"),
            (lambda p, b: changed(b, mask_key=p.advertisements[0].mask_key), "twice"),
        ],
        ids=[
            "other round",
            "one twice",
            "too few",
            "itself",
            "unsigned",
            "wrong signature",
            "other mask key",
            "other channel key",
            "signed for another round",
            "a key twice",
            "its own key",
        ],
    )
    def test_share_keys_refuses(
        self, change: Callable[[Play, KeyBook], KeyBook], message: str
    ) -> None:
        play = Play(small_plan(), signed=True).to_keys()
        with pytest.raises(ProtocolError, match=message):
            stages.share_keys(play.advertised[0], change(play, play.books[0]), ScriptedSecrets(b""))

    def test_a_neighbour_that_is_not_in_the_directory_is_refused(self) -> None:
        play = Play(small_plan(), signed=True).to_keys()
        known = {c: i.public for c, i in play.identities.items() if c != play.neighbours[0][0]}
        state = replace(
            play.advertised[0],
            member=replace(play.members[0], directory=secagg.Directory(known)),
        )
        with pytest.raises(ProtocolError, match="not in the directory"):
            stages.share_keys(state, play.books[0], ScriptedSecrets(b""))

    def test_a_key_of_small_order_is_refused(self) -> None:
        """Its shared secret is all zeros: everyone would know the mask."""
        play = Play(small_plan()).to_keys()
        book = changed(play.books[0], channel_key=bytes(32))
        with pytest.raises(ProtocolError, match="not a valid X25519 key"):
            stages.share_keys(play.advertised[0], book, ScriptedSecrets(b""))

    def test_with_too_few_neighbours_colluders_alone_would_hold_the_secrets(self) -> None:
        play = Play(small_plan()).to_keys()
        threshold = play.plan.threshold
        enough = replace(play.books[0], advertisements=play.books[0].advertisements[:threshold])
        stages.share_keys(play.advertised[0], enough, ScriptedSecrets(b""))
        fewer = replace(enough, advertisements=enough.advertisements[1:])
        with pytest.raises(ProtocolError, match="at least"):
            stages.share_keys(play.advertised[0], fewer, ScriptedSecrets(b""))


def changed(book: KeyBook, **fields: bytes) -> KeyBook:
    head, *rest = book.advertisements
    return replace(book, advertisements=(replace(head, **fields), *rest))  # type: ignore[arg-type]


def with_entry(book: KeyBook, entry: Advertisement) -> KeyBook:
    return replace(book, advertisements=(*book.advertisements, entry))


class TestShareBox:
    def test_mask_vector_refuses(self) -> None:
        play = Play(small_plan()).to_shares()
        state, box, vector = play.shared[0], play.boxes[0], play.vectors[0]
        peer, other = play.neighbours[0][:2]
        size = play.plan.bundle_bytes

        def holding(changes: dict[int, bytes], keep: bool = True) -> ShareBox:
            bundles = {**(box.bundles if keep else {}), **changes}
            return replace(box, bundles=Parts.of(bundles, size))

        short = Parts(box.bundles.clients, box.bundles.rows[:, 1:])
        wrong = {
            "another round": replace(box, round_id=bytes(32)),
            "not expected": holding({0: box.bundles[peer]}),
            "are needed": holding({peer: box.bundles[peer]}, keep=False),
            "is not what it says": holding({peer: box.bundles[other]}),
            "must have": replace(box, bundles=short),
        }
        for message, changed_box in wrong.items():
            with pytest.raises(ProtocolError, match=message):
                stages.mask_vector(state, changed_box, vector)
        with pytest.raises(ParameterError, match="6 integers"):
            stages.mask_vector(state, box, vector[:5])

    @pytest.mark.parametrize("server_model", list(secagg.ServerModel))
    def test_a_bundle_altered_anywhere_is_not_used(self, server_model: str) -> None:
        """Its ciphertext by one bit, its digest by one bit; a signature is looked at later."""
        play = Play(small_plan(server=server_model)).to_shares()
        peer, size = play.neighbours[0][0], play.plan.bundle_bytes
        good = play.boxes[0].bundles[peer]
        for place in range(play.plan.sealed_bytes + 16):
            bad = bytearray(good)
            bad[place] ^= 1
            bundles = Parts.of({**play.boxes[0].bundles, peer: bytes(bad)}, size)
            with pytest.raises(BadShares) as refused:
                stages.mask_vector(
                    play.shared[0], replace(play.boxes[0], bundles=bundles), play.vectors[0]
                )
            assert refused.value.peer == peer

    def test_masking_with_nobody_would_leave_the_vector_bare(self) -> None:
        play = Play(small_plan()).to_shares()
        box = ShareBox(play.round_id, Parts.of({}, play.plan.bundle_bytes))
        with pytest.raises(ProtocolError, match="0 neighbours shared"):
            stages.mask_vector(play.shared[0], box, play.vectors[0])


class TestAgreement:
    def plan(self) -> secagg.Plan:
        return small_plan(server="dishonest", noise_variance=Fraction(100))

    def test_two_views_would_give_one_vector_away_and_are_refused(self) -> None:
        """A server tells half of a victim's neighbours that it survived, the others not."""
        curious = Play(small_plan(clients=60, colluders=0, dropouts=10)).to_vectors()
        plan = curious.plan
        assert 2 * plan.threshold <= plan.neighbours  # the smaller neighbourhood allows it
        alive = curious.request()
        dead = drop(curious, 0)
        seeds: dict[int, bytes] = {}
        keys: dict[int, bytes] = {}
        for place, peer in enumerate(curious.neighbours[0]):
            view = alive if place < plan.threshold else dead
            reply = stages.reveal_shares(curious.masked[peer], view)[1]
            (seeds if place < plan.threshold else keys)[peer] = {
                **reply.survivors,
                **reply.dropped,
            }[0][:32]
        victim_of(curious, seeds, keys)

        # Against a dishonest server the clients sign one view, and ask for others' signatures.
        play = Play(self.plan()).to_vectors()
        honest = play.request()
        other = replace(honest, survivors=honest.survivors - {0}, dropped=frozenset({0}))
        with pytest.raises(ProtocolError, match="not the lists this client signed"):
            stages.reveal_shares(play.agreed[1], other)
        views = [lists_digest(play.round_id, r.survivors, r.dropped) for r in (honest, other)]
        assert views[0] != views[1]
        # Two views cannot both be signed often enough: 6 + 1 of 12 honest, and one colluder.
        assert 2 * play.plan.signers > play.plan.clients + play.plan.colluders

    def test_reveal_shares_refuses_lists_that_are_not_agreed(self) -> None:
        play = Play(self.plan()).to_vectors()
        request = play.request()
        state = play.agreed[3]
        stages.reveal_shares(state, request)
        signer, *_ = request.signatures
        fewer = {c: s for c, s in request.signatures.items() if c != signer}
        with pytest.raises(ProtocolError, match="not signed any lists"):
            stages.reveal_shares(play.masked[3], request)
        with pytest.raises(ProtocolError, match="are needed"):
            stages.reveal_shares(state, replace(request, signatures=Parts.of(fewer, 64)))
        forged = Parts.of({**fewer, signer: bytes(64)}, 64)
        with pytest.raises(ProtocolError, match="not signed by it"):
            stages.reveal_shares(state, replace(request, signatures=forged))
        others = Play(self.plan(), number=2).to_vectors().request().signatures
        with pytest.raises(ProtocolError, match="not signed by it"):
            stages.reveal_shares(state, replace(request, signatures=others))

    def test_signatures_of_others_than_survivors_do_not_count(self) -> None:
        play = Play(self.plan(), silent=frozenset({5})).to_vectors()
        request = play.request()
        forged = dict(request.signatures)
        forged.pop(0)
        forged[5] = bytes(64)
        wrong = replace(request, signatures=Parts.of(forged, 64))
        with pytest.raises(ProtocolError, match="not survivors"):
            stages.reveal_shares(play.agreed[3], wrong)

    def test_a_server_gets_one_signature_per_client(self) -> None:
        play = Play(self.plan()).to_vectors()
        session = secagg.ClientSession(play.members[1], play.vectors[1], resume(play, 1))
        for message in (play.invitation, play.books[1], play.boxes[1]):
            session.handle(encode(message, play.plan))
        asked = server.ask_to_agree(play.summed)
        other = AgreeRequest(play.round_id, asked.survivors - {0}, frozenset({0}))
        session.handle(encode(asked, play.plan))
        refusal = decode(session.handle(encode(other, play.plan)), play.plan)
        assert "Agreed does not wait for AgreeRequest" in refusal.reason  # type: ignore[union-attr]

    def test_too_few_signatures_abort(self) -> None:
        play = Play(self.plan()).to_vectors()
        with pytest.raises(RoundAborted, match="nothing was revealed"):
            server.certify(play.summed, {})
        with pytest.raises(ProtocolError, match="signed lists"):
            server.ask_to_unmask(play.summed)

    def test_a_curious_plan_has_no_agreement(self) -> None:
        play = Play(small_plan()).to_vectors()
        with pytest.raises(ProtocolError, match="no agreement"):
            stages.agree(play.masked[1], server.ask_to_agree(play.summed))

    def test_a_lie_about_who_survived_leaves_the_sum_masked(self) -> None:
        """Listing a lost client as survivor would open more noise seeds, but no sum."""
        play = Play(self.plan(), silent=frozenset({5})).to_vectors()
        lie = replace(play.summed, survivors=play.summed.survivors | {5}, dropped=frozenset())
        asked = server.ask_to_agree(lie)
        agreed, agreements = {}, {}
        for client, state in play.masked.items():
            agreed[client], agreements[client] = stages.agree(state, asked)
        certified = server.certify(lie, agreements)
        request = server.ask_to_unmask(certified)
        replies = {c: stages.reveal_shares(s, request)[1] for c, s in agreed.items()}
        total = server.unmask(certified, replies).total
        # Votes and noise are below a few hundred; what the server gets is uniform modulo 2^32.
        assert np.abs(total - play.truth()).min() > 100_000


def resume(play: Play, client: int) -> ScriptedSecrets:
    source = ScriptedSecrets(play.label + b"%d" % client)
    Identity.draw(client, source)
    return source


def shown(bundle: bytes, places: list[int]) -> bytes:
    """The shares of a bundle at some places, then a digest of every other one."""
    shares = [bundle[at : at + 32] for at in range(0, len(bundle), 32)]
    hidden = [share for place, share in enumerate(shares) if place not in places]
    digests = [hashlib.sha256(share).digest()[:16] for share in hidden]
    return b"".join([shares[place] for place in places] + digests)


class TestNoise:
    def test_claiming_fewer_dropouts_would_bring_the_noise_under_the_target(self) -> None:
        plan = small_plan(noise_variance=Fraction(100), xnoise="precise")
        noise = plan.noise
        assert noise is not None
        # With two lost and none admitted, all components but the first would be removed.
        bare = (plan.clients - 2 - plan.colluders) * noise.left(0)
        assert bare < noise.target == noise.honest_left(2)

    @pytest.mark.parametrize("xnoise", ["precise", "approximate"])
    def test_only_what_the_target_does_not_need_is_revealed(self, xnoise: str) -> None:
        plan = small_plan(clients=16, dropouts=4, noise_variance=Fraction(100), xnoise=xnoise)
        play = Play(plan, silent=frozenset({2, 9})).to_vectors()
        reply = stages.reveal_shares(play.masked[0], play.request())[1]
        assert plan.noise is not None
        opened = plan.noise.opened(2)
        assert reply.survivors.keys() | reply.dropped.keys() == set(play.neighbours[0])
        for peer, part in reply.survivors.items():
            assert part == shown(play.masked[0].bundles[peer], [1, *(1 + k for k in opened)])
        for peer, part in reply.dropped.items():
            assert part == shown(play.masked[0].bundles[peer], [0])


class TestMember:
    def test_a_member_is_who_it_says(self) -> None:
        play = Play(small_plan(), signed=True)
        with pytest.raises(ParameterError, match="numbered"):
            secagg.Member(12, play.plan)
        with pytest.raises(ParameterError, match="together"):
            secagg.Member(0, play.plan, identity=play.identities[0])
        with pytest.raises(ParameterError, match="cannot act for"):
            secagg.Member(0, play.plan, identity=play.identities[1], directory=play.directory)
        with pytest.raises(ParameterError, match="needs a directory"):
            secagg.Member(0, small_plan(server="dishonest"))
        with pytest.raises(ParameterError, match="32 bytes"):
            secagg.Directory({0: b"short"})

    def test_no_secret_is_printed(self) -> None:
        play = Play(small_plan(noise_variance=Fraction(100)), signed=True).to_vectors()
        secret = [
            play.shared[0].self_mask_seed,
            play.shared[0].mask_pair.private,
            play.advertised[0].channel_pair.private,
            *play.shared[0].noise_seeds,
            *play.masked[0].bundles.values(),
            *play.shared[0].receiving_keys.values(),
        ]
        reply = stages.reveal_shares(play.masked[0], play.request())[1]
        shown = "".join(
            map(repr, (play.advertised[0], play.shared[0], play.masked[0], play.sent[0], reply))
        )
        assert not [s for s in secret if repr(s)[2:-1] in shown or s.hex() in shown]
