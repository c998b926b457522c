"""Letters and the parties' checks: what belongs to another run or step is refused."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from combine_play import averaging, clustering, random_searches

from urna.errors import ProtocolError, RoundAborted, RoundUnfinished
from urna.protocols import he
from urna.protocols.he.messages import ChannelBook
from urna.protocols.he.wire import decode, encode
from urna.protocols.secagg import Directory, Identity
from urna.randomness import OsSecrets, ScriptedSecrets
from urna.systems.combine import PartySession, RunName, Seat, Task, conduct, freeze, play, thaw
from urna.systems.combine.letters import (
    LetterKind,
    OpeningStatement,
    PartyLetter,
    digest,
    invitation,
    kind_of,
    pack_opened,
    unpack_opened,
    witnessed,
)
from urna.systems.combine.letters import signed as sign_letter
from urna.systems.combine.memory import MemoryParties
from urna.systems.combine.party import Given, Joined, Over, check_statement
from urna.systems.combine.tasks import digest_of

NONCE = bytes(range(32))
BINDING = bytes(range(32))
LETTER = PartyLetter(LetterKind.GIVEN, ((b"one", b""), (b"three",)), 2, 3)
LONGEST = 10_000


def read(data: bytes) -> PartyLetter:
    return PartyLetter.decode(data, BINDING, longest=LONGEST, party=2)


def test_a_letter_comes_back_as_it_was() -> None:
    assert read(LETTER.encode(BINDING)) == LETTER
    assert kind_of(LETTER.encode(BINDING), LONGEST) is LetterKind.GIVEN


def test_every_byte_of_a_letters_frame_counts() -> None:
    """Altered anywhere but in a part, it is refused; in a part, it is another letter."""
    data = LETTER.encode(BINDING)
    for place in range(len(data)):
        altered = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        try:
            found = read(altered)
        except ProtocolError:
            continue
        assert found != LETTER


@pytest.mark.parametrize("cut", [1, 10, 40, 60])
def test_truncated_and_longer_letters_are_refused(cut: int) -> None:
    data = LETTER.encode(BINDING)
    for wrong in (data[:-cut], data + bytes(cut)):
        with pytest.raises(ProtocolError):
            read(wrong)


def test_letters_of_others_are_refused() -> None:
    data = LETTER.encode(BINDING)
    with pytest.raises(ProtocolError, match="another task or another run"):
        PartyLetter.decode(data, bytes(32), longest=LONGEST, party=2)
    with pytest.raises(ProtocolError, match="another sender"):
        PartyLetter.decode(data, BINDING, longest=LONGEST, party=1)
    with pytest.raises(ProtocolError, match="to 50 bytes"):
        PartyLetter.decode(data, BINDING, longest=50, party=2)


def test_what_a_step_showed_comes_back() -> None:
    opened = np.array([3, -1])
    found = unpack_opened(pack_opened(opened))
    assert found.dtype == opened.dtype
    assert found.tolist() == opened.tolist()
    for wrong in (b"", bytes(7), b"i" + bytes(8)):
        with pytest.raises(ProtocolError):
            unpack_opened(wrong)


def test_a_statement_has_one_encoding() -> None:
    said = OpeningStatement(1, {3: ("b",), 0: ("a",)})
    assert OpeningStatement.decode(said.encode()) == said
    for wrong in (b"{}", b"[", b"7", said.encode().replace(b" ", b"")):
        with pytest.raises(ProtocolError):
            OpeningStatement.decode(wrong)


class Lying:
    """A server's transport that changes letters of one kind on the way."""

    def __init__(
        self, inner: MemoryParties, kind: LetterKind, change: Callable[[int, bytes], bytes]
    ) -> None:
        self._inner, self._kind, self._change = inner, kind, change

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        changed = {
            place: self._change(place, data) if kind_of(data, 1 << 40) is self._kind else data
            for place, data in letters.items()
        }
        return self._inner.exchange(stage, changed)


def named(task: Task) -> RunName:
    return RunName(task, NONCE)


def sessions(
    task: Task, label: bytes, *, recomputes: bool = False, signed: bool = False
) -> dict[int, PartySession]:
    """Return parties that agreed to one run, and sign their letters or not."""
    searches, secrets = random_searches(task.parties, seed=4), ScriptedSecrets(label)
    parties = {}
    for party, search in enumerate(searches.clients):
        signer = Keys(party, task.parties) if signed else None
        seat = Seat(named(task), party, search, recomputes, signer)
        parties[party] = PartySession(seat, secrets)
    return parties


def given_state(
    task: Task, label: bytes = b"checks"
) -> tuple[Seat, Given, OpeningStatement, bytes]:
    """Return a party that has given its vectors, and the honest request to open their sum."""
    seen: dict[int, bytes] = {}

    def note(place: int, data: bytes) -> bytes:
        seen[place] = data
        raise StopIteration

    parties = sessions(task, label)
    transport = Lying(MemoryParties(parties), LetterKind.OPEN, note)
    with pytest.raises(StopIteration):
        conduct(named(task), transport)
    state, run = parties[0].state, named(task)
    assert isinstance(state, Given)
    letter = PartyLetter.decode(seen[0], run.binding, longest=run.longest)
    said, asked = letter.group(0, 2)
    return parties[0].seat, state, OpeningStatement.decode(said), asked


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda said: replace(said, step=1), "this party is in step 0"),
        (lambda said: replace(said, inputs={**said.inputs, 0: ("f" * 64,)}), "own ciphertexts"),
        (lambda said: replace(said, inputs={0: said.inputs[0]}), "of 1 parties; 3 are needed"),
        (
            lambda said: replace(said, inputs={**said.inputs, 7: ("f" * 64,)}),
            "parties there are not",
        ),
        (lambda said: replace(said, inputs={**said.inputs, 1: said.inputs[2]}), "named twice"),
        (
            lambda said: replace(said, inputs={**said.inputs, 1: (*said.inputs[1], "f" * 64)}),
            "too many are named",
        ),
    ],
    ids=["another step", "not its own", "too few", "strangers", "twice", "too many"],
)
def test_a_party_opens_only_what_is_said_to_be_its_steps_result(
    change: Callable[[OpeningStatement], OpeningStatement], reason: str
) -> None:
    seat, state, said, asked = given_state(Task(3, 3, averaging()))
    request = decode(asked, seat.run.sessions[0], he.DecryptionRequest)
    check_statement(seat, state, said, request)
    with pytest.raises(ProtocolError, match=reason):
        check_statement(seat, state, change(said), request)


def test_a_party_opens_no_clusters_without_those_whose_settings_made_cells_dense() -> None:
    """Three of four may open; without a party of the first total, a cluster could be of one."""
    task, checked = Task(4, 3, clustering(2, tolerance=0.5)), list[int]()

    def check(place: int, data: bytes) -> bytes:
        seat, state, run = parties[place].seat, parties[place].state, named(task)
        assert isinstance(state, Given)
        letter = PartyLetter.decode(data, run.binding, longest=run.longest)
        said = OpeningStatement.decode(letter.group(0, 2)[0])
        request = decode(letter.group(0, 2)[1], run.sessions[said.step], he.DecryptionRequest)
        if said.step:
            check_statement(seat, state, said, request)
            fewer = replace(said, inputs={p: d for p, d in said.inputs.items() if p != 3})
            with pytest.raises(ProtocolError, match="leaves out 1 parties of the step before"):
                check_statement(seat, state, fewer, request)
            checked.append(place)
        return data

    parties = sessions(task, b"left out")
    conduct(named(task), Lying(MemoryParties(parties), LetterKind.OPEN, check))
    assert checked == [0, 1, 2]


def test_a_ciphertext_of_one_party_does_not_carry_the_noise_of_a_sum() -> None:
    """The crude attempt: the right statement, and one party's own ciphertext to open."""
    seat, state, said, asked = given_state(Task(3, 3, averaging()))
    session = seat.run.sessions[0]
    request = decode(asked, session, he.DecryptionRequest)
    alone = replace(request, noise=he.NoiseModel(session.parameters).fresh())
    with pytest.raises(ProtocolError, match="not carry the noise of this step"):
        check_statement(seat, state, said, alone)


def _swap(place: int, data: bytes, task: Task, run: RunName) -> bytes:
    """Ask to open party 1's own ciphertext, with the sum's noise and statement."""
    del place
    letter = PartyLetter.decode(data, run.binding, longest=run.longest)
    (said, asked), *rest = letter.groups
    session = run.sessions[0]
    request = decode(asked, session, he.DecryptionRequest)
    witnesses = rest[0]
    given = PartyLetter.decode(witnesses[1], run.binding, longest=run.longest, party=1)
    own = decode(given.group(0, 1)[0], session, he.Ciphertext, sender=1)
    forged = replace(request, second=own.parts[1])
    groups = ((said, encode(forged, session)), *rest)
    return replace(letter, groups=groups).encode(run.binding)


@pytest.mark.parametrize("recomputes", [True, False], ids=["computed again", "taken at its word"])
def test_a_server_that_shows_another_ciphertext_is_caught_by_those_who_compute_again(
    recomputes: bool,
) -> None:
    """Without computing again the lie goes through: honest-but-curious is what is assumed."""
    task = Task(3, 3, averaging())
    parties = sessions(task, b"swap", recomputes=recomputes)
    run = named(task)
    lying = Lying(
        MemoryParties(parties), LetterKind.OPEN, lambda place, data: _swap(place, data, task, run)
    )
    if recomputes:
        with pytest.raises(RoundUnfinished) as failed:
            conduct(run, lying, witnesses=True)
        assert all("not what these ciphertexts give" in why for why in failed.value.lost.values())
    else:
        with pytest.raises(RoundUnfinished, match="answers another request"):
            conduct(run, lying, witnesses=True)


def test_a_witness_that_was_not_named_is_refused() -> None:
    task = Task(3, 3, averaging())
    parties = sessions(task, b"witness", recomputes=True)

    def other(place: int, data: bytes) -> bytes:
        del place
        run = named(task)
        letter = PartyLetter.decode(data, run.binding, longest=run.longest)
        first, witnesses, *rest = letter.groups
        of_another = PartyLetter.decode(witnesses[1], run.binding, longest=run.longest, party=1)
        swapped = (replace(of_another, party=0).encode(run.binding), *witnesses[1:])
        return replace(letter, groups=(first, swapped, *rest)).encode(run.binding)

    lying = Lying(MemoryParties(parties), LetterKind.OPEN, other)
    with pytest.raises(RoundUnfinished) as failed:
        conduct(named(task), lying, witnesses=True)
    assert "not the one that was named" in failed.value.lost[0]


class Keys:
    """A party's identity key, and everybody's public ones."""

    def __init__(self, party: int, parties: int) -> None:
        own = [Identity.of(n, bytes([n + 1]) * 32) for n in range(parties)]
        self.identity = own[party]
        self._directory = Directory({each.client: each.public for each in own})

    def sign(self, message: bytes) -> bytes:
        return self.identity.sign(message)

    def verify(self, party: int, signature: bytes, message: bytes) -> None:
        self._directory.verify(party, signature, message, "the letter")


Change = Callable[[int, bytes], bytes]


class Impostor:
    """A server that lets some parties' place be taken by itself, and keeps what it sees."""

    def __init__(self, task: Task, honest: dict[int, PartySession], played: set[int]) -> None:
        own = sessions(task, b"impostor", recomputes=False, signed=False)
        self._sessions = honest | {place: own[place] for place in played}
        self.seen: list[bytes] = []

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        del stage
        replies = {place: self._sessions[place].handle(data) for place, data in letters.items()}
        self.seen += replies.values()
        return replies


def substituted(task: Task, run: RunName) -> tuple[Change, list[he.KeyHolder]]:
    """Draw a joint key whose secret one server holds alone."""
    (session,) = run.sessions
    secrets = ScriptedSecrets(b"the server's own")
    drawn = [he.draw_key(session, secrets) for _ in range(task.parties)]
    total = he.add_key_shares(session, {p: share for p, (_, share) in enumerate(drawn)})

    def swap(place: int, data: bytes) -> bytes:
        del place
        letter = PartyLetter.decode(data, run.binding, longest=run.longest)
        groups = ((encode(total, session),), *letter.groups[1:])
        return replace(letter, groups=groups).encode(run.binding)

    return swap, [he.finish_key(p, each, total, secrets)[0] for p, (each, _) in enumerate(drawn)]


@pytest.mark.parametrize("signed", [False, True])
def test_a_joint_key_of_the_servers_own_gets_no_ciphertext(signed: bool) -> None:
    task = Task(3, 3, averaging())
    swap, _ = substituted(task, named(task))
    parties = sessions(task, b"swapped key", recomputes=True, signed=signed)
    lying = Lying(MemoryParties(parties), LetterKind.KEY_SUMS, swap)
    with pytest.raises(RoundAborted) as failed:
        conduct(named(task), lying, witnesses=True)
    assert all("not the sum of all parties' shares" in why for why in failed.value.lost.values())
    assert not any(isinstance(party.state, Given) for party in parties.values())


def test_without_computing_again_such_a_server_reads_every_vector() -> None:
    """What the check above stops: honest-but-curious is what is assumed without it."""
    task = Task(3, 3, averaging())
    run = named(task)
    swap, holders = substituted(task, run)
    parties = sessions(task, b"swapped key", recomputes=False, signed=False)
    seen: list[bytes] = []

    class Watching(Lying):
        def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
            replies = super().exchange(stage, letters)
            seen.extend(r for r in replies.values() if kind_of(r, run.longest) is LetterKind.GIVEN)
            return replies

    lying = Watching(MemoryParties(parties), LetterKind.KEY_SUMS, swap)
    with pytest.raises(ProtocolError, match="another joint key"):  # our server adds nothing up
        conduct(named(task), lying, witnesses=True)
    (session,) = run.sessions
    given = PartyLetter.decode(seen[0], run.binding, longest=run.longest, party=0).group(0, 1)[0]
    ciphertext = decode(given, session, he.Ciphertext, sender=0)
    public_key = holders[0].public_key
    request = he.ask_to_decrypt(public_key, ciphertext)
    shares = {p: he.help_to_decrypt(h, request, OsSecrets()) for p, h in enumerate(holders)}
    read = he.combine(public_key, ciphertext, shares)
    vector = task.agreed.vector(random_searches(3, seed=4).clients[0])
    assert np.asarray(read)[: len(vector)].tolist() == vector.tolist()


def test_a_server_that_plays_the_other_parties_is_stopped_by_signatures_alone() -> None:
    task = Task(3, 3, averaging())
    honest = sessions(task, b"played", recomputes=True, signed=False)
    alone = Impostor(task, {0: honest[0]}, {1, 2})
    conduct(named(task), alone, witnesses=True)  # it cannot know
    signing = sessions(task, b"played", recomputes=True, signed=True)
    alone = Impostor(task, {0: signing[0]}, {1, 2})
    with pytest.raises(RoundAborted) as failed:
        conduct(named(task), alone, witnesses=True)
    assert "is not signed by it" in failed.value.lost[0]
    assert isinstance(signing[0].state, Joined)


@pytest.mark.parametrize("task", [Task(3, 2, averaging()), Task(3, 3, clustering(2))])
def test_parties_that_sign_come_to_the_same(task: Task) -> None:
    parties = sessions(task, b"signed", recomputes=True, signed=True)
    transport = MemoryParties(parties)
    outcome = conduct(named(task), transport, witnesses=True)
    straight = play(task, random_searches(3, seed=4).clients, ScriptedSecrets(b"straight"))
    assert outcome.combined == straight.combined


class Altering(MemoryParties):
    """A network that turns one bit of one party's letters of one kind."""

    def __init__(
        self,
        parties: dict[int, PartySession],
        victim: int,
        kind: LetterKind,
        place: float,
        bit: int,
    ) -> None:
        super().__init__(parties)
        self._victim, self._kind, self._place, self._bit = victim, kind, place, bit
        self.altered = 0

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        replies = dict(super().exchange(stage, letters))
        data = replies.get(self._victim)
        if data is not None and kind_of(data, 1 << 40) is self._kind:
            wrong = bytearray(data)
            wrong[int(self._place * len(wrong))] ^= 1 << self._bit
            replies[self._victim] = bytes(wrong)
            self.altered += 1
        return replies


@pytest.mark.parametrize(
    "kind", [LetterKind.KEY_SHARES, LetterKind.KEY_REST, LetterKind.GIVEN, LetterKind.HELP]
)
@pytest.mark.parametrize(
    "task",
    [Task(4, 2, averaging()), Task(4, 3, clustering(2))],
    ids=["mean", "clusters"],
)
def test_a_bit_flipped_on_the_way_costs_its_sender_alone_its_place(
    task: Task, kind: LetterKind
) -> None:
    """Wherever it is in the letter: head, ciphertexts, signature."""
    victim, rng = 1, np.random.default_rng([7, kind])
    # One place at random in each part of a letter; the first is in its head.
    for place in (0.0, *((np.arange(3) + rng.random(3)) / 3), 1 - 1e-9):
        parties = sessions(task, b"flipped", recomputes=True, signed=True)
        network = Altering(parties, victim, kind, place, int(rng.integers(8)))
        lost: Mapping[int, str] = {}
        outcome = None
        try:
            verifier = Keys(0, task.parties)
            outcome = conduct(named(task), network, witnesses=True, verifier=verifier)
            lost = outcome.lost
        except (RoundAborted, RoundUnfinished) as failed:
            lost = failed.lost
        assert network.altered == 1
        # Its vector is in the total before it is asked to help; others help in its place.
        helped = kind is LetterKind.HELP and len(task.steps) == 1
        assert set(lost) == (set() if helped else {victim})
        assert all(why.startswith("its letter arrived altered") for why in lost.values())
        # Keys need everybody, and a second step all of the first; else the others go on.
        assert (outcome is None) == (kind is not LetterKind.GIVEN and not helped)
        if outcome is not None:
            there = [p for p in range(task.parties) if kind is LetterKind.HELP or p != victim]
            searches = [random_searches(task.parties, seed=4).clients[p] for p in there]
            straight = play(task.among(len(there)), searches, ScriptedSecrets(b"straight"))
            assert outcome.combined == straight.combined


class Replaying(MemoryParties):
    """A network that delivers one party's letter of an exchange again in a later one."""

    def __init__(
        self, parties: dict[int, PartySession], victim: int, kind: LetterKind, first: int
    ) -> None:
        super().__init__(parties)
        self._victim, self._kind, self._first = victim, kind, first
        self._seen: list[bytes] = []
        self.replayed = 0

    def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
        replies = dict(super().exchange(stage, letters))
        data = replies.get(self._victim)
        if data is not None and kind_of(data, 1 << 40) is self._kind:
            self._seen.append(data)
            if len(self._seen) > self._first:
                replies[self._victim] = self._seen[0]
                self.replayed += 1
        return replies


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize("kind", [LetterKind.GIVEN, LetterKind.HELP])
def test_a_letter_of_an_earlier_step_is_lost_and_blames_nobody(
    kind: LetterKind, signed: bool
) -> None:
    """Its sender wrote it, but not now: it counts as not arrived."""
    task, victim = Task(4, 3, clustering(2)), 1
    parties = sessions(task, b"replayed", recomputes=True, signed=signed)
    network = Replaying(parties, victim, kind, 1)
    verifier = Keys(0, task.parties) if signed else None
    run = partial(conduct, named(task), network, witnesses=True)
    lost: Mapping[int, str] = {}
    if kind is LetterKind.GIVEN:  # whoever is in the first sums must be in the second
        with pytest.raises(RoundUnfinished) as failed:
            run(verifier=verifier)
        lost = failed.value.lost
    else:  # another helps in its place, and its own sums count
        outcome = run(verifier=verifier)
        straight = play(task, random_searches(4, seed=4).clients, ScriptedSecrets(b"straight"))
        assert outcome.combined == straight.combined
        lost = outcome.lost
    assert network.replayed == 1
    assert all(why.startswith("its letter is not one of this step") for why in lost.values())
    assert set(lost) <= {victim}


def test_help_with_an_earlier_request_of_the_same_step_is_lost() -> None:
    """One helper vanishes; the other's answer to the first request comes for the second."""
    task = Task(4, 2, averaging())
    parties = sessions(task, b"again", recomputes=True, signed=True)

    class Network(Replaying):
        def exchange(self, stage: str, letters: Mapping[int, bytes]) -> dict[int, bytes]:
            replies = super().exchange(stage, letters)
            opening = any(kind_of(data, 1 << 40) is LetterKind.OPEN for data in letters.values())
            return {p: d for p, d in replies.items() if not (opening and p == 0)}

    network = Network(parties, 1, LetterKind.HELP, 1)
    outcome = conduct(named(task), network, witnesses=True, verifier=Keys(0, 4))
    assert network.replayed == 1
    assert outcome.took_part == (0, 1, 2, 3)


def test_letters_of_several_steps_are_not_shown_together() -> None:
    """A lying server shows one party's signed ciphertexts of another exchange."""
    run, signer = RunName(Task(2, 2, averaging()), NONCE), Keys(0, 2)
    letters = [
        PartyLetter(LetterKind.GIVEN, ((b"x",),), 0, 2),
        PartyLetter(LetterKind.GIVEN, ((b"x",),), 1, 3),
    ]
    shown = {p: sign_letter(each, run.binding, Keys(p, 2)) for p, each in enumerate(letters)}
    with pytest.raises(ProtocolError, match="letters of different steps"):
        witnessed(shown, LetterKind.GIVEN, run, signer)
    moved = replace(letters[1], exchange=2)
    assert witnessed(
        shown | {1: sign_letter(moved, run.binding, Keys(1, 2))}, LetterKind.GIVEN, run, signer
    )
    # Its signature is over the step: the number alone cannot be changed.
    other = PartyLetter.decode(shown[1], run.binding, longest=run.longest, party=1)
    with pytest.raises(ProtocolError, match="is not signed by it"):
        witnessed(
            {1: replace(other, exchange=2).encode(run.binding)}, LetterKind.GIVEN, run, signer
        )


def test_channel_keys_of_the_servers_own_get_no_share() -> None:
    task = Task(3, 2, averaging())
    run = named(task)
    (session,) = run.sessions

    def swap(place: int, data: bytes) -> bytes:
        del place
        letter = PartyLetter.decode(data, run.binding, longest=run.longest)
        sums, (book,), shown = letter.groups
        keys = decode(book, session, ChannelBook).keys
        forged = ChannelBook((keys[1], keys[1], keys[2]))
        groups = (sums, (encode(forged, session),), shown)
        return replace(letter, groups=groups).encode(run.binding)

    parties = sessions(task, b"channels", recomputes=True, signed=True)
    lying = Lying(MemoryParties(parties), LetterKind.KEY_SUMS, swap)
    with pytest.raises(RoundAborted) as failed:
        conduct(named(task), lying, witnesses=True)
    assert all("channel keys are not those" in why for why in failed.value.lost.values())


@pytest.mark.parametrize("half", [0, 1])
def test_a_key_for_products_of_the_servers_own_opens_nothing(half: int) -> None:
    task = Task(3, 3, clustering(2))
    run = named(task)
    session = run.sessions[0]

    def swap(place: int, data: bytes) -> bytes:
        del place
        letter = PartyLetter.decode(data, run.binding, longest=run.longest)
        first, witnesses, (key, *rest) = letter.groups
        forged = decode(key, session, he.RelinearisationKey)
        forged.parts[half, 0, 0, 0] ^= 1
        groups = (first, witnesses, (encode(forged, session), *rest))
        return replace(letter, groups=groups).encode(run.binding)

    parties = sessions(task, b"products", recomputes=True, signed=False)
    lying = Lying(MemoryParties(parties), LetterKind.OPEN, swap)
    with pytest.raises(RoundUnfinished) as failed:
        conduct(named(task), lying, witnesses=True)
    assert all("not made of all parties' parts" in why for why in failed.value.lost.values())


@pytest.mark.parametrize(
    "changed",
    [
        (bytes(32), 0, 3),  # another run
        (NONCE, 1, 3),  # another's place
        (NONCE, 0, 2),  # fewer than were announced
    ],
)
def test_a_party_that_was_told_its_place_takes_no_other(changed: tuple[bytes, int, int]) -> None:
    task = Task(3, 2, averaging())
    party = sessions(task, b"place", recomputes=False, signed=False)[0]
    nonce, place, parties = changed
    groups = ((nonce, parties.to_bytes(4, "big")),)
    letter = PartyLetter(LetterKind.INVITE, groups, place).encode(digest_of(task))
    reply = party.handle(letter)
    assert b"not to the run and the place that were announced" in reply
    assert party.state is None


def test_a_second_result_of_a_step_is_not_opened() -> None:
    task = Task(3, 2, averaging())
    parties = sessions(task, b"second")
    transport = MemoryParties(parties)
    letters: dict[int, bytes] = {}

    def note(place: int, data: bytes) -> bytes:
        letters[place] = data
        return data

    conduct(named(task), Lying(transport, LetterKind.OPEN, note))
    # The run is over for everybody: the same letter again is not answered.
    reply = parties[0].handle(letters[0])
    assert isinstance(parties[0].state, Over)
    assert kind_of(reply, LONGEST) is LetterKind.REFUSAL
    assert b"the run is over" in reply


def test_an_invitation_to_another_task_is_refused_and_the_proper_one_taken_once() -> None:
    task = Task(3, 3, averaging())
    party = sessions(task, b"invited")[0]
    other = named(Task(3, 3, averaging(share=0.5)))
    assert b"another task or another run" in party.handle(invitation(other, 0))
    proper = invitation(named(task), 0)
    assert kind_of(party.handle(proper), 1 << 30) is LetterKind.KEY_SHARES
    assert kind_of(party.handle(proper), 1 << 30) is LetterKind.REFUSAL


def test_tasks_that_differ_in_anything_have_different_digests() -> None:
    tasks: list[Task] = [
        Task(3, 3, averaging()),
        Task(4, 3, averaging()),
        Task(3, 2, averaging()),
        Task(3, 3, averaging(0.1)),
        Task(3, 3, clustering(2)),
        Task(3, 3, clustering(3)),
    ]
    assert len({digest_of(task) for task in tasks}) == len(tasks)


def test_letters_out_of_order_are_not_answered() -> None:
    task = Task(3, 3, averaging())
    party = sessions(task, b"order")[0]
    run = named(task)
    for kind in (LetterKind.KEY_SUMS, LetterKind.GIVE, LetterKind.OPEN, LetterKind.END):
        early = PartyLetter(kind, (), 0).encode(run.binding)
        assert kind_of(party.handle(early), LONGEST) is LetterKind.REFUSAL
    party.handle(invitation(run, 0))
    for kind in (LetterKind.GIVE, LetterKind.OPEN, LetterKind.END):
        assert b"is not due" in party.handle(PartyLetter(kind, (), 0).encode(run.binding))
        assert b"goes to another party" in party.handle(
            PartyLetter(kind, (), 1).encode(run.binding)
        )


def test_a_refusal_tells_nothing_of_a_partys_search() -> None:
    """Its search keeps more than agreed: the reason must not say how many."""
    task = Task(3, 3, averaging(share=0.5, most=3))
    with pytest.raises(RoundAborted) as aborted:
        conduct(named(task), MemoryParties(sessions(task, b"tells")))
    assert set(aborted.value.lost.values()) == {
        "refused: this party's search does not fit the task (step 1: encrypting)"
    }


@pytest.mark.parametrize(
    "kind", [LetterKind.KEY_SHARES, LetterKind.KEY_REST, LetterKind.GIVEN, LetterKind.HELP]
)
def test_a_party_that_answers_with_garbage_is_named(kind: LetterKind) -> None:
    task = Task(3, 3, averaging())

    class Garbled(PartySession):
        def handle(self, data: bytes) -> bytes:
            answer = super().handle(data)
            if kind_of(answer, 1 << 30) is not kind:
                return answer
            run = named(task)
            letter = PartyLetter.decode(answer, run.binding, longest=run.longest)
            return replace(letter, groups=((b"garbage",), ())).encode(run.binding)

    parties = sessions(task, b"garbage")
    honest = parties[1]
    parties[1] = Garbled(honest.seat, honest._secrets)
    if (
        kind is LetterKind.KEY_REST
    ):  # nothing of it is read where all decrypt and nothing is multiplied
        conduct(named(task), MemoryParties(parties))
        return
    with pytest.raises((RoundAborted, RoundUnfinished)) as failed:
        conduct(named(task), MemoryParties(parties))
    assert failed.value.lost.keys() == {1}
    assert "sent what is not due" in failed.value.lost[1]


def test_secrets_do_not_show_in_a_partys_state() -> None:
    seat, state, _, _ = given_state(Task(3, 3, averaging()))
    shown = repr((seat, state))
    assert "search" not in shown.replace("searches", "")
    assert "secret" not in shown
    assert len(shown) < 5_000


def test_digests_differ_between_ciphertexts() -> None:
    assert digest(b"a") != digest(b"b")
    assert len(digest(b"a")) == 64


class Forgetful(PartySession):
    """A party that is started anew for every letter, with what it has kept."""

    def handle(self, data: bytes) -> bytes:
        answer = super().handle(data)
        if held := freeze(self.seat, self.state):
            self.state = thaw(held, self.seat)
        return answer


@pytest.mark.parametrize("threshold", [2, 3])
def test_a_party_goes_on_from_what_it_has_kept(
    threshold: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = random_searches(3, seed=5)
    task = Task(3, threshold, clustering())
    straight = play(task, searches.clients, ScriptedSecrets(b"kept"))
    monkeypatch.setattr("urna.systems.combine.memory.PartySession", Forgetful)
    anew = play(task, searches.clients, ScriptedSecrets(b"kept"))
    assert anew.combined == straight.combined
    assert [o.tolist() for o in anew.shown] == [o.tolist() for o in straight.shown]


@pytest.mark.parametrize("data", [b"", b"x" * 100, b"PK\x03\x04" + bytes(60)])
def test_what_was_not_kept_is_refused(data: bytes) -> None:
    seat = Seat(named(Task(2, 2, averaging())), 0, random_searches(2).clients[0])
    with pytest.raises(ProtocolError, match="cannot be read"):
        thaw(data, seat)


def test_keys_that_were_kept_serve_no_other_task_run_or_place() -> None:
    search, secrets = random_searches(3).clients[0], ScriptedSecrets(b"other task")
    first, second = (named(Task(3, 3, clustering(points))) for points in (2, 3))
    seat = Seat(first, 0, search)
    party = PartySession(seat, secrets)
    party.handle(invitation(first, 0))
    held = freeze(seat, party.state)
    assert isinstance(thaw(held, seat), Joined)
    others = (Seat(second, 0, search), Seat(first, 1, search))
    for other in (*others, Seat(RunName(first.task, bytes(32)), 0, search)):
        with pytest.raises(ProtocolError, match="another run"):
            thaw(held, other)
