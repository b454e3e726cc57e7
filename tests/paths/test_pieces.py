"""Pieces of the time axis."""

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st

from contiformer.paths.trajectories import EMPTY_PIECES, Pieces, evaluate_basis, fixed_pieces, window_pieces

FAR = 128
spans = st.floats(0, 20)
windows_of_a_batch = st.lists(
    st.tuples(st.floats(-1e3, 1e3), spans).map(lambda pair: (pair[0], sum(pair))), min_size=1, max_size=4
)
ROUNDING = 1e-9  # of a piece: a window of one piece is not two for the sake of its last bits
ROUNDED = (-0.7701372667447254, 0.786603471097987)  # start + (end - start) is not end


def column(*numbers: float) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


@given(windows=windows_of_a_batch, length=st.floats(0.4, 30))
@example(windows=[ROUNDED], length=1.0)
def test_window_pieces_cover_each_window(windows, length):
    start, end = torch.tensor(windows, dtype=torch.float64).T
    edges = window_pieces(start, end, length, FAR).edges
    assert torch.equal(edges[:, 0], start)
    assert torch.allclose(edges[:, -1], end, rtol=1e-12, atol=1e-12)
    widths = edges.diff(dim=1)
    assert (widths >= 0).all()
    assert (widths <= length * (1 + 1e-5)).all()


def test_window_pieces_of_a_shorter_batch_mate_have_length_zero_behind_its_end():
    edges = window_pieces(column(0, 0), column(1, 4), 1.0, FAR).edges
    assert edges.tolist() == [[0, 1, 1, 1, 1], [0, 1, 2, 3, 4]]


def test_window_pieces_grow_where_the_limit_is_reached():
    pieces = window_pieces(column(0), column(100), 1.0, limit=4)
    assert pieces.edges.tolist() == [[0, 25, 50, 75, 100]]


@given(windows=windows_of_a_batch, length=st.floats(0.4, 30))
@example(windows=[ROUNDED], length=0.5)
def test_fixed_pieces_start_with_the_sequence_and_reach_its_end(windows, length):
    points = torch.tensor(windows, dtype=torch.float64)
    edges = fixed_pieces(points, length, FAR).edges
    assert torch.equal(edges[:, 0], points[:, 0])
    assert (edges[:, -1] >= points[:, 1] - ROUNDING * length).all()
    # every edge is a whole number of lengths from the start
    number = (edges - edges[:, :1]) / length
    assert torch.allclose(number, number.round(), atol=1e-6)


def test_long_empty_stretches_become_one_piece():
    edges = fixed_pieces(torch.tensor([[0.0, 0.5, 1000.0], [0.0, 0.1, 1.5]]), 1.0, FAR).edges
    assert edges[0].tolist() == [*range(EMPTY_PIECES + 2), 999, 1000]
    assert edges[1].tolist() == [0, 1, *[2] * (EMPTY_PIECES + 2)]


@pytest.mark.parametrize("beyond", [1e-3, 5e-7, 2 * ROUNDING])
def test_fixed_pieces_hold_a_time_just_beyond_an_edge(beyond):
    pieces = fixed_pieces(column(0, 1 + beyond)[None], 1.0, FAR)
    assert float(pieces.edges[0, -1]) >= 1 + beyond


def test_fixed_pieces_do_not_grow_for_the_sake_of_rounding():
    assert fixed_pieces(column(0, 1 + 1e-15)[None], 1.0, FAR).count == 1


@given(length=st.floats(0.4, 3), first=spans, later=spans)
def test_later_times_do_not_move_edges_of_fixed_pieces(length, first, later):
    short, long = (fixed_pieces(column(0, first, end)[None], length, FAR).edges[0] for end in (first, first + later))
    assert torch.equal(short, long[: len(short)])


def test_more_pieces_than_the_limit_are_refused_with_what_to_do():
    with pytest.raises(ValueError, match="piece_length"):
        fixed_pieces(torch.arange(66.0)[None], 1.0, limit=64)
    assert fixed_pieces(torch.arange(65.0)[None], 1.0, limit=64).count == 64


def test_no_sequences_have_one_piece():
    assert window_pieces(column(), column(), 1.0, FAR).edges.shape == (0, 2)
    assert fixed_pieces(torch.zeros(0, 3), 1.0, FAR).edges.shape == (0, 2)


def test_times_belong_to_the_piece_that_holds_them_or_to_the_nearest():
    pieces = Pieces(torch.tensor([[0.0, 1.0, 3.0]]))
    times = torch.tensor([[-1.0, 0.0, 0.5, 1.0, 2.0, 3.0, 9.0]])
    piece = pieces.locate(times)
    assert piece.tolist() == [[0, 0, 0, 1, 1, 1, 1]]
    assert pieces.local(times, piece).tolist() == [[-1, -1, 0, -1, 0, 1, 1]]


@pytest.mark.parametrize("window", [(0.0, 0.0), (0.0, 1.0), (0.0, 1.5), (0.0, 2.0), ROUNDED], ids=str)
@pytest.mark.parametrize("mates", [0, 1], ids=["alone", "beside a longer sequence"])
def test_basis_at_the_end_of_a_window_has_its_derivative(window, mates):
    """The last time of a sequence must not fall out of its pieces, nor into empty ones, where nothing moves."""
    start, end = torch.tensor([window, *[(0.0, 7.0)] * mates], dtype=torch.float64).T
    times = end.clone().requires_grad_()
    linear_term = evaluate_basis(window_pieces(start, end, 1.0, FAR), times[:, None], 2)[..., 1].sum()
    (slope,) = torch.autograd.grad(linear_term, times)
    assert torch.equal(slope > 0, end > start)


def test_basis_is_zero_in_the_slots_of_other_pieces():
    basis = evaluate_basis(Pieces(torch.tensor([[0.0, 1.0, 3.0]])), torch.tensor([[0.75, 2.0]]), 3)
    assert basis[0, 0].tolist() == [[1, 0.5, -0.5], [0, 0, 0]]
    assert basis[0, 1].tolist() == [[0, 0, 0], [1, 0, -1]]


class _Cut(torch.nn.Module):
    def forward(self, start, end):
        return window_pieces(start, end, 1.0, 4, 4).edges


def test_a_given_number_of_pieces_does_not_depend_on_values():
    """Exporters need it: short windows must not be cut into fewer pieces."""
    start = torch.zeros(2)
    for end in (0.1, 3.0):
        assert window_pieces(start, start + end, 1.0, 4, 4).count == 4
    traced = torch.export.export(_Cut(), (start, start + 0.1)).module()
    torch.testing.assert_close(traced(start, start + 3.0), _Cut()(start, start + 3.0))


def test_a_given_number_of_pieces_is_kept_where_one_would_do():
    edges = window_pieces(torch.tensor([0.0]), torch.tensor([0.5]), 1.0, 4, 3).edges
    assert edges.tolist() == [[0.0, 0.5, 0.5, 0.5]]
