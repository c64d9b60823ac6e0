"""CARE appendix A, checked exactly on a small discrete policy.

One step of the idealised update multiplies each response's probability by exp(eta * reward) and
normalises (equation 5). The tests follow the appendix: unrolling (7), the decomposition of the
log-odds (9), the ranking flip exactly at its bound (10), and the corollary (11, 12). Where a bound
must be hit exactly, probabilities and the factors exp(eta * r) are fractions, so no rounding can
decide; elsewhere numbers are float64.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import permutations

import pytest

RUNS = 50


@dataclass(frozen=True, kw_only=True, slots=True)
class World:
    """One prompt: a start policy, the true reward, and each step's size and misspecification."""

    start: Sequence[float]
    """[Y], sums to 1."""
    gold: Sequence[float]
    """[Y], the latent true reward."""
    etas: Sequence[float]
    """[T]"""
    errors: Sequence[Sequence[float]]
    """[T][Y], rubric reward minus true reward."""

    def reward(self, step: int, y: int) -> float:
        """The rubric's reward of a step: truth plus misspecification."""
        return self.gold[y] + self.errors[step][y]


def gibbs_step(policy: Sequence[float], rewards: Sequence[float], eta: float) -> list[float]:
    """Equation 5: the solution of the KL-regularised update (4)."""
    weights = [p * math.exp(eta * r) for p, r in zip(policy, rewards, strict=True)]
    total = math.fsum(weights)
    return [w / total for w in weights]


def stepped(world: World) -> list[float]:
    """The policy after all single updates, one after the other."""
    policy = list(world.start)
    for step, eta in enumerate(world.etas):
        rewards = [world.reward(step, y) for y in range(len(policy))]
        policy = gibbs_step(policy, rewards, eta)
    return policy


def closed_form(world: World) -> list[float]:
    """Equation 7: one exponential of the summed rewards, one normaliser."""
    sums = [
        math.fsum(eta * world.reward(t, y) for t, eta in enumerate(world.etas))
        for y in range(len(world.start))
    ]
    weights = [p * math.exp(s) for p, s in zip(world.start, sums, strict=True)]
    total = math.fsum(weights)
    return [w / total for w in weights]


def log_odds_terms(world: World, y: int, z: int) -> tuple[float, float, float]:
    """Equation 9's three terms for y against z: initial log-odds, true quality, distortion."""
    initial = math.log(world.start[y] / world.start[z])
    quality = math.fsum(eta * (world.gold[y] - world.gold[z]) for eta in world.etas)
    distortion = math.fsum(
        eta * (errors[y] - errors[z]) for eta, errors in zip(world.etas, world.errors, strict=True)
    )
    return initial, quality, distortion


def random_world(seed: int) -> World:
    rng = random.Random(seed)
    size, steps = rng.randint(2, 7), rng.randint(1, 12)
    raw = [rng.uniform(0.05, 1.0) for _ in range(size)]
    return World(
        start=[p / sum(raw) for p in raw],
        gold=[rng.random() for _ in range(size)],
        etas=[rng.uniform(0.01, 1.5) for _ in range(steps)],
        errors=[[rng.uniform(-0.6, 0.6) for _ in range(size)] for _ in range(steps)],
    )


# ------------------------------------------------------------------ equations 4 and 5
@pytest.mark.parametrize("seed", range(20))
def test_the_gibbs_update_maximises_its_objective(seed: int) -> None:
    """Equation 4: no other policy has a higher expected reward minus divergence.

    At the maximum the objective is log Z; any other policy q lies lower by KL(q | maximum).
    """
    world, rng = random_world(seed), random.Random(seed)
    rewards = [world.reward(0, y) for y in range(len(world.start))]
    eta = world.etas[0]

    def objective(q: Sequence[float]) -> float:
        return math.fsum(
            p * (eta * r - math.log(p / p0))
            for p, r, p0 in zip(q, rewards, world.start, strict=True)
        )

    best = gibbs_step(world.start, rewards, eta)
    log_z = math.log(
        math.fsum(p * math.exp(eta * r) for p, r in zip(world.start, rewards, strict=True))
    )
    assert objective(best) == pytest.approx(log_z, abs=1e-12)
    for _ in range(50):
        raw = [p * math.exp(rng.gauss(0.0, 0.3)) for p in best]
        other = [p / sum(raw) for p in raw]
        kl = math.fsum(q * math.log(q / p) for q, p in zip(other, best, strict=True))
        assert kl > 0
        assert objective(other) == pytest.approx(log_z - kl, abs=1e-12)


# ------------------------------------------------------------------ equation 7
def test_single_updates_unroll_to_the_closed_form_by_hand() -> None:
    """Two steps, two responses: 1/4 * 2 * 3 against 3/4 * 1 * 1 is 1.5 : 0.75, so 2/3 and 1/3."""
    world = World(
        start=[0.25, 0.75],
        gold=[0.0, 0.0],
        etas=[1.0, 2.0],
        errors=[[math.log(2), 0.0], [math.log(3) / 2, 0.0]],
    )
    assert stepped(world) == pytest.approx([2 / 3, 1 / 3], abs=1e-12)
    assert closed_form(world) == pytest.approx([2 / 3, 1 / 3], abs=1e-12)


@pytest.mark.parametrize("seed", range(RUNS))
def test_single_updates_unroll_to_the_closed_form(seed: int) -> None:
    world = random_world(seed)
    got, wanted = stepped(world), closed_form(world)
    assert math.fsum(got) == pytest.approx(1.0, abs=1e-12)
    assert max(abs(a - b) for a, b in zip(got, wanted, strict=True)) <= 1e-12


# ------------------------------------------------------------------ equations 8 and 9
@pytest.mark.parametrize("seed", range(RUNS))
def test_the_log_odds_of_every_pair_are_the_sum_of_the_three_terms(seed: int) -> None:
    world = random_world(seed)
    policy = stepped(world)
    for y, z in permutations(range(len(policy)), 2):
        wanted = math.fsum(log_odds_terms(world, y, z))
        assert math.log(policy[y] / policy[z]) == pytest.approx(wanted, abs=1e-10)


def test_an_error_that_hits_both_responses_alike_moves_nothing() -> None:
    """Only the difference of the misspecification enters: a shift of all rewards cancels."""
    world = random_world(3)
    shifted = World(
        start=world.start,
        gold=world.gold,
        etas=world.etas,
        errors=[[e + 0.37 for e in errors] for errors in world.errors],
    )
    assert stepped(shifted) == pytest.approx(stepped(world), abs=1e-12)


# ------------------------------------------------------------------ equation 10
Factors = Sequence[tuple[Fraction, Fraction]]
"""For each step exp(eta * value) of the better and of the worse response."""


def exact_odds(start: Fraction, quality: Factors, distortion: Factors) -> Fraction:
    """pi_T(y+) / pi_T(y-), stepwise, without rounding: every factor is a fraction."""
    odds = start
    for (true_plus, true_minus), (error_plus, error_minus) in zip(quality, distortion, strict=True):
        odds *= (true_plus * error_plus) / (true_minus * error_minus)
    return odds


def exact_bound(start: Fraction, quality: Factors) -> Fraction:
    """The exponential of equation 10's right side."""
    return start * math.prod(plus / minus for plus, minus in quality)


QUALITY: Factors = [(Fraction(3, 2), Fraction(1)), (Fraction(5, 4), Fraction(6, 5))]
"""The better response is truly better in both steps: factors 3/2 and 25/24."""
START = Fraction(2, 3)
"""The better response starts behind: 0.4 against 0.6."""


def distorted_to(total: Fraction) -> Factors:
    """A misspecification in favour of the worse response whose factors multiply to ``total``."""
    return [(Fraction(1), Fraction(7, 8)), (Fraction(1), total / Fraction(7, 8))]


@pytest.mark.parametrize("step", [Fraction(1, 10), Fraction(1, 10**6), Fraction(1, 10**18)])
def test_the_ranking_flips_exactly_at_the_bound(step: Fraction) -> None:
    """2/3 * 3/2 * 25/24 = 25/24: distortion of just that size makes both equally likely."""
    bound = exact_bound(START, QUALITY)
    assert bound == Fraction(25, 24)
    assert exact_odds(START, QUALITY, distorted_to(bound)) == 1
    under = exact_odds(START, QUALITY, distorted_to(bound * (1 - step)))
    over = exact_odds(START, QUALITY, distorted_to(bound * (1 + step)))
    assert under > 1 > over


def test_the_exact_odds_are_those_of_the_float_update() -> None:
    """The fractions above describe the same policy as equation 5 in float64."""
    distortion = distorted_to(Fraction(25, 24))
    etas = [0.5, 0.25]
    gold = [[math.log(f) / e for f in pair] for e, pair in zip(etas, QUALITY, strict=True)]
    errors = [[math.log(f) / e for f in pair] for e, pair in zip(etas, distortion, strict=True)]
    policy = [0.4, 0.6]
    for eta, true, error in zip(etas, gold, errors, strict=True):
        policy = gibbs_step(policy, [a + b for a, b in zip(true, error, strict=True)], eta)
    assert policy == pytest.approx([0.5, 0.5], abs=1e-12)


@pytest.mark.parametrize("margin", [1e-6, -1e-6])
@pytest.mark.parametrize("seed", range(RUNS))
def test_a_distortion_over_the_bound_flips_and_one_under_it_does_not(
    seed: int, margin: float
) -> None:
    """Random policies; the last step's error is set so that the bound is missed by ``margin``."""
    world = random_world(seed)
    better, worse = sorted((0, 1), key=lambda y: -world.gold[y])
    initial, quality, distortion = log_odds_terms(world, better, worse)
    last = list(world.errors[-1])
    last[worse] += (initial + quality + distortion + margin) / world.etas[-1]
    moved = World(
        start=world.start,
        gold=world.gold,
        etas=world.etas,
        errors=[*world.errors[:-1], last],
    )
    initial, quality, distortion = log_odds_terms(moved, better, worse)
    assert -distortion - initial - quality == pytest.approx(margin, abs=1e-9)
    policy = stepped(moved)
    assert (policy[worse] > policy[better]) == (margin > 0)


def test_a_static_error_flips_in_the_step_that_passes_the_bound_and_stays_flipped() -> None:
    """The converse: gain 0.1 a step, distortion 0.3, head start 1: flipped from step 6 on.

    At step 5 both sides are equal: 1 + 5 * 0.1 = 5 * 0.3. A repair after three steps keeps the
    order for ever; so the time of the repair matters, not only that there is one.
    """
    head_start = [math.e / (1 + math.e), 1 / (1 + math.e)]

    def world(steps: int, repaired_at: int) -> World:
        errors = [[0.0, 0.3 if t < repaired_at else 0.0] for t in range(steps)]
        return World(start=head_start, gold=[0.1, 0.0], etas=[1.0] * steps, errors=errors)

    for steps in (1, 4):
        better, worse = stepped(world(steps, repaired_at=steps))
        assert better > worse
    better, worse = stepped(world(5, repaired_at=5))
    assert better == pytest.approx(worse, abs=1e-12)
    for steps in (6, 7, 60):
        better, worse = stepped(world(steps, repaired_at=steps))
        assert better < worse
        better, worse = stepped(world(steps, repaired_at=3))
        assert better > worse


# ------------------------------------------------------------------ equations 11 and 12
def frontier_world(rng: random.Random, gamma: float, epsilons: Sequence[float]) -> World:
    """A pair whose true gap is at least ``gamma`` and whose distortion stays within epsilon_t."""
    share = rng.uniform(0.1, 0.9)
    shared = [rng.uniform(-1.0, 1.0) for _ in epsilons]
    return World(
        start=[share, 1 - share],
        gold=[gamma * rng.uniform(1.0, 1.5), 0.0],
        etas=[rng.uniform(0.05, 1.0) for _ in epsilons],
        errors=[
            [s, s + rng.choice((1.0, -1.0, rng.uniform(-1, 1))) * e]
            for s, e in zip(shared, epsilons, strict=True)
        ],
    )


def holds(world: World, gamma: float, epsilons: Sequence[float]) -> bool:
    """Equation 12."""
    signal = math.log(world.start[0] / world.start[1]) + gamma * math.fsum(world.etas)
    return signal > math.fsum(e * n for e, n in zip(epsilons, world.etas, strict=True))


def test_the_order_of_a_frontier_pair_is_kept_wherever_the_inequality_holds() -> None:
    """Random search for a counterexample; the inequality holds and fails often enough to tell."""
    rng = random.Random(7)
    num_held = num_flipped = 0
    for _ in range(5_000):
        gamma = rng.uniform(0.0, 0.6)
        epsilons = [rng.uniform(0.0, 0.8) for _ in range(rng.randint(1, 10))]
        world = frontier_world(rng, gamma, epsilons)
        better, worse = stepped(world)
        if holds(world, gamma, epsilons):
            num_held += 1
            assert better > worse
        else:
            num_flipped += better < worse
    assert num_held > 1_000
    assert num_flipped > 500


@pytest.mark.parametrize(("excess", "is_kept"), [(-1e-9, True), (1e-9, False)])
def test_the_inequality_cannot_be_weakened(excess: float, is_kept: bool) -> None:
    """A tight case: gap and distortion at their limits in each step, always for the worse one.

    Head start log 2, gamma 0.2, ten steps of eta 0.5: the signal is log 2 + 1, so a distortion of
    (log 2 + 1) / 5 a step is the limit.
    """
    gamma, etas = 0.2, [0.5] * 10
    limit = (math.log(2) + 1.0) / 5.0 + excess
    world = World(
        start=[2 / 3, 1 / 3], gold=[gamma, 0.0], etas=etas, errors=[[0.0, limit]] * len(etas)
    )
    assert holds(world, gamma, [limit] * len(etas)) == is_kept
    better, worse = stepped(world)
    assert (better > worse) == is_kept
