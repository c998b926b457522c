"""Plans that remove noise in a way that is asked for, whatever the number of dropouts suggests."""

from dataclasses import fields, replace

from urna.protocols.secagg import Removal
from urna.tally import TallyPlan, Terms


class _Precise(Terms):
    __slots__ = ()

    @property
    def removal(self) -> Removal:
        return Removal.PRECISE


class _Approximate(Terms):
    __slots__ = ()

    @property
    def removal(self) -> Removal:
        return Removal.APPROXIMATE


def removing(plan: TallyPlan, removal: Removal) -> TallyPlan:
    """Return the plan with this removal."""
    kind = _Precise if removal is Removal.PRECISE else _Approximate
    terms = kind(**{field.name: getattr(plan.terms, field.name) for field in fields(Terms)})
    return replace(plan, terms=terms)
