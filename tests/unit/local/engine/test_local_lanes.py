import numpy as np
import pytest

from urna.errors import UnknownName
from urna.local.models import adult_mlp, authors_space, cifar10_cnn, mnist_cnn
from urna.local.recipe import Optimiser, Recipe, group_plans, plan_candidates, share_lanes
from urna.space import Space


def test_the_authors_space_trains_a_fifth_of_its_candidates_in_the_first_epoch() -> None:
    plans = plan_candidates(authors_space(), Recipe(), lambda: None)
    (group,) = group_plans(plans)
    everyone = tuple(range(100))
    lanes = [len(share_lanes(group.recipes, everyone, e).leaders) for e in range(3)]
    assert lanes == [20, 100, 100]


def test_members_share_a_lane_only_while_they_agree_in_everything() -> None:
    recipes = (
        Recipe(lr=0.1, decay=0.5),
        Recipe(lr=0.1, decay=0.5, weight_decay=0.1),
        Recipe(lr=0.1, decay=1.0),
        Recipe(lr=0.1, decay=1.0, nesterov=True),  # without momentum the same as the last
        Recipe(lr=0.1, decay=1.0, nesterov=True, momentum=0.9),
    )
    assert share_lanes(recipes, (0, 1, 2, 3, 4), 0).lane_of.tolist() == [0, 1, 0, 0, 2]
    assert share_lanes(recipes, (0, 1, 2, 3, 4), 1).lane_of.tolist() == [0, 1, 2, 2, 3]
    assert share_lanes(recipes, (2, 4), 1).lane_of.tolist() == [-1, -1, 0, -1, 1]


def test_groups_part_what_does_not_stack() -> None:
    def factory(width: int = 4) -> None: ...

    space = Space(lr=[0.1, 0.2], width=[2, 4], batch_size=[8, 16], optimiser=["sgd", "adamw"])
    groups = group_plans(plan_candidates(space, Recipe(), factory))
    assert len(groups) == 8
    assert sorted(place for g in groups for place in g.places) == list(range(16))
    assert {g.recipes[0].optimiser for g in groups} == set(Optimiser)


def test_a_name_that_nobody_takes_is_refused_with_the_nearest() -> None:
    def factory(width: int = 4) -> None: ...

    with pytest.raises(UnknownName, match="did you mean 'width'"):
        plan_candidates([{"widht": 3}], Recipe(), factory)
    (plan,) = plan_candidates([{"any": 3}], Recipe(), lambda **kwargs: None)
    assert plan.shape == (("any", 3),)


@pytest.mark.parametrize(
    ("factory", "columns", "classes", "weights"),
    [
        (mnist_cnn, 784, 10, 320 + 18_496 + 1_179_776 + 1_290),
        (adult_mlp, 108, 2, 6_976 + 4_160 + 130),
        (cifar10_cnn, 3072, 10, 896 + 64 + 9_248 + 64 + 18_496 + 128 + 73_856 + 256 + 1_290),
    ],
    ids=["MNIST", "Adult", "CIFAR-10"],
)
def test_the_authors_networks_have_the_papers_layers(
    factory: object, columns: int, classes: int, weights: int
) -> None:
    torch = pytest.importorskip("torch")
    module = factory()
    assert module(torch.zeros(2, columns)).shape == (2, classes)
    assert sum(p.numel() for p in module.parameters()) == weights


def test_memory_decides_how_much_runs_at_once() -> None:
    capacity = pytest.importorskip("urna.local.engine.pieces")
    mega, giga = 2**20, 2**30
    plenty = capacity.plan_capacity(mega, mega, lanes=100, device="cuda", free=100 * giga)
    assert plenty.lanes == 100
    tight = capacity.plan_capacity(mega, mega, lanes=100, device="cuda", free=giga)
    assert 100 * mega + tight.lanes * 3 * mega <= giga
    hopeless = capacity.plan_capacity(giga, giga, lanes=100, device="cuda", free=giga)
    assert hopeless.lanes == 1


def test_what_a_lane_keeps_is_measured_on_the_module_itself() -> None:
    torch = pytest.importorskip("torch")
    capacity = pytest.importorskip("urna.local.engine.pieces")
    module = torch.nn.Sequential(
        torch.nn.Linear(8, 1000), torch.nn.BatchNorm1d(1000), torch.nn.ReLU()
    )
    before = module[1].running_mean.clone()
    kept, state = capacity.lane_bytes(module, torch.randn(32, 8), states=3)
    assert 3 * 32 * 1000 * 4 <= kept <= 5 * 32 * 1000 * 4
    assert state == 3 * 4 * (8 * 1000 + 1000 + 2000)
    np.testing.assert_array_equal(module[1].running_mean, before)
