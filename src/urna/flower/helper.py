"""A helper's part in votes of which only the winner is opened: a node of another organisation.

In a secure sum it puts in a uniform mask. In a verified count it vouches for the statement,
examines the batch and decides again. Then it garbles one circuit, once. What it must remember
between messages is one key and the letters it answered, from which it stands again where it stood.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flwr.app import Context

from urna.errors import ProtocolError, Refused
from urna.flower.announcement import Announcement
from urna.flower.identities import DirectoryFile
from urna.flower.messages import Kind, Letter, Reply
from urna.flower.participant import Call, Rounds
from urna.flower.policy import Policy
from urna.flower.site import Mounted, Site, answered, forget, store, stored
from urna.flower.vote_subject import check_statement, is_verified, selection_of, vote_of
from urna.noise import IntVector
from urna.protocols.ballots import HelperMember, HelperSession, PublicParameters
from urna.protocols.ballots.messages import decode_announcement
from urna.protocols.secagg import Directory, Member
from urna.protocols.secagg.keys import sign_receipt
from urna.protocols.winner import answer, garble
from urna.protocols.winner.session import Answered
from urna.randomness import StreamSecrets, derive_seed
from urna.tally.selection_plan import helper_shares, mask_of, residues

_PLACE = "urna helper"


class Helper(Mounted):
    """A helper's part in votes of which only the winner is opened. It needs no data.

    Guarantee:
        Of each vote it garbles one circuit, once, and counts it in its own ledger before what
        it holds of the sum leaves: its mask, or its shares. What it computes is the circuit of the
        plan that was announced, so the noise is the one that voters were promised. In a
        verified count it vouches for the one statement that follows from the announcement, and
        answers one batch; signatures, one report per client, the fewest ballots and every
        verdict it checks itself. It confirms a count or signs that it never will, not both.

    Args:
        policy: The helper's limits, or the file that holds them; see `Participant`.
        name: The helper's name where it has no identity key.
        script: Label of scripted randomness, for tests and comparisons. NOT PRIVATE.
    """

    def __init__(
        self,
        *,
        policy: Policy | Path | str | None = None,
        name: Callable[[Context], str] | None = None,
        script: str | None = None,
    ) -> None:
        super().__init__(_Helping(Site(policy, name, script)).answer)


class _Helping:
    """A helper's part, letter by letter: that of any node in a round, and what comes beside it."""

    def __init__(self, site: Site) -> None:
        self._site, self._rounds = site, Rounds(site, self)

    def answer(self, letter: Letter, context: Context) -> Reply:
        """Answer one letter of a server."""
        match letter.kind:
            case Kind.HELP:
                return self._help(letter, context)
            case Kind.BEGIN if not answered(context, letter.digest):
                return self._begin(letter, context)
            case Kind.STAGE if not answered(context, letter.digest):
                return self._go_on(letter, context)
            case Kind.END:
                forget(context, _PLACE)
        return self._rounds.answer(letter, context)

    def check(self, call: Call) -> None:
        """Refuse a vote that names another helper."""
        announcement = call.announcement
        if announcement.kind not in ("winner", "verified"):
            raise Refused(f"nothing on this node contributes to a {announcement.kind[:40]}")
        named = self._site.name_in(announcement, call.policy, call.context)
        if vote_of(announcement).helper != named:
            raise Refused("another helper is announced; this node only helps")
        if is_verified(announcement) and not announcement.signed:
            raise Refused("verified ballots are signed, and this vote is not")

    def _begin(self, letter: Letter, context: Context) -> Reply:
        """Take part in the sum, and answer the server's offer beside it; or vouch for a count."""
        reply = self._rounds.answer(letter, context)
        held = stored(context, _PLACE)
        announcement = Announcement.read(held["announcement"])
        if is_verified(announcement):
            return reply
        place = announcement.place(letter.number)
        _, sent = _answered(announcement, held["key"], place, letter.inputs)
        store(context, _PLACE, held | {"offer": letter.inputs, "number": letter.number})
        return replace(reply, beside=sent)

    def vector(self, call: Call) -> tuple[IntVector, str]:
        """Return a uniform mask. Nothing may stand in for it: without it the sum is exact."""
        store(call.context, _PLACE, {"announcement": call.announcement.as_bytes(), "key": call.key})
        return _mask(call.announcement, call.key), ""

    def check_count(self, letter: Letter, call: Call) -> None:
        check_statement(PublicParameters.read(letter.body), call.announcement, letter.number)

    def report(self, letter: Letter, call: Call, member: Member) -> Reply:
        """Vouch for the statement, which `check_count` has held against the announcement."""
        held = {
            "announcement": call.announcement.as_bytes(),
            "key": call.key,
            "number": letter.number,
            "client": member.client,
            "statement": letter.body,
        }
        vouched = self._session(held, call.policy, call.context).vouch(letter.body)
        store(call.context, _PLACE, held)
        return Reply(vouched)

    def _go_on(self, letter: Letter, context: Context) -> Reply:
        """Examine the batch of a verified count, once; in a sum, take the next step."""
        if _PLACE not in context.state or "statement" not in stored(context, _PLACE):
            return self._rounds.answer(letter, context)
        held, policy = stored(context, _PLACE), self._site.policy_of(context)
        forget(context, _PLACE)
        if "batch" in held:
            raise ProtocolError("this helper has examined the batch of this count")
        announcement, number = Announcement.read(held["announcement"]), int(held["number"])
        policy.account.claims.claim(announcement.place(number), "Examined")
        session = self._session(held, policy, context)
        digest = _digest(session.vouch(held["statement"]))
        answers = session.examine(letter.body)
        _, sent = _answered(announcement, held["key"], digest, letter.beside)
        store(context, _PLACE, held | {"batch": letter.body, "offer": letter.beside})
        return Reply(body=answers, beside=sent)

    def _help(self, letter: Letter, context: Context) -> Reply:
        """Garble the circuit, once: the state is gone before the answer is made."""
        if letter.announcement:
            return self._give_up(letter, context)
        held, policy = stored(context, _PLACE), self._site.policy_of(context)
        forget(context, _PLACE)
        announcement, number = Announcement.read(held["announcement"]), int(held["number"])
        if "statement" in held:
            return self._confirm(letter, held, policy, context)
        policy.account.claims.claim(announcement.coin(number, held["offer"]), "Helped")
        place = announcement.place(number)
        state, _ = _answered(announcement, held["key"], place, held["offer"])
        shares = helper_shares(_mask(announcement, held["key"]), selection_of(announcement))
        source = StreamSecrets(derive_seed(held["key"], b"garble"))
        _, sent = garble(state, letter.body, shares, source)
        return Reply(sent)

    def _confirm(
        self, letter: Letter, held: Mapping[str, Any], policy: Policy, context: Context
    ) -> Reply:
        """Decide again on every report, count the selection, and garble the circuit."""
        if "batch" not in held:
            raise ProtocolError("this helper has examined no batch of this count")
        announcement, key = Announcement.read(held["announcement"]), held["key"]
        policy.account.claims.claim(announcement.place(int(held["number"])), "Helped")
        session = self._session(held, policy, context)
        digest = _digest(session.vouch(held["statement"]))
        session.examine(held["batch"])  # the same answers again: they do not leave
        confirmation = session.confirm(letter.body)
        state, _ = _answered(announcement, key, digest, held["offer"])
        selection = selection_of(announcement)
        modulus = vote_of(announcement).count(announcement.terms).codec.modulus
        shares = residues(session.share, selection, modulus, started=True)
        _, sent = garble(state, letter.beside, shares, StreamSecrets(derive_seed(key, b"garble")))
        return Reply(body=confirmation, beside=sent)

    def _give_up(self, letter: Letter, context: Context) -> Reply:
        """Sign that a count will never be confirmed: the one right to do so is used up first."""
        forget(context, _PLACE)
        policy = self._site.policy_of(context)
        announcement = policy.read_announcement(letter.announcement, letter.signature)
        coin = announcement.coin(letter.number, letter.inputs)
        member = self._site.member(announcement, letter.client, policy, context, coin)
        if not is_verified(announcement) or member.identity is None:
            raise Refused("only a verified count is given up, by a helper with a key")
        policy.account.claims.claim(announcement.place(letter.number), "Helped")
        round_id = announcement.round_id(letter.number, coin)
        return Reply(sign_receipt(member.identity, round_id))

    def _session(self, held: Mapping[str, Any], policy: Policy, context: Context) -> HelperSession:
        """Return the helper's session from its beginning: the same key, the same draws."""
        announcement, number = Announcement.read(held["announcement"]), int(held["number"])
        coin = announcement.coin(number)
        member = self._site.member(announcement, int(held["client"]), policy, context, coin)
        directory = policy.directory_file()
        if member.identity is None or directory is None:
            raise Refused("a helper of a verified count has an identity key and a directory")
        voters = voters_of(announcement, directory)

        def agree(statement: PublicParameters) -> None:
            check_statement(statement, announcement, number)

        def enter(statement: PublicParameters) -> None:
            del statement
            policy.account.count(announcement, number, coin, private=self._site.private)

        return HelperSession(
            HelperMember(member.identity, voters, policy.fewest_clients),
            StreamSecrets(derive_seed(held["key"], b"count"), private=self._site.private),
            agree=agree,
            enter=enter,
        )


def voters_of(announcement: Announcement, keys: DirectoryFile) -> Directory:
    """Return the identity keys of those who have a ballot, by number."""
    helper = vote_of(announcement).helper
    numbered = enumerate(announcement.names)
    return Directory({number: keys.keys[name] for number, name in numbered if name != helper})


def _answered(
    announcement: Announcement, key: bytes, context: bytes, offer: bytes
) -> tuple[Answered, bytes]:
    """Answer the server's offer; the same key, the same answer."""
    circuit = vote_of(announcement).circuit(announcement.terms)
    return answer(circuit, context, offer, StreamSecrets(derive_seed(key, b"answer")))


def _digest(vouched: bytes) -> bytes:
    return decode_announcement(vouched).statement.digest


def _mask(announcement: Announcement, key: bytes) -> IntVector:
    return mask_of(derive_seed(key, b"mask"), selection_of(announcement))
