import pytest

from nnx_ppo_fn._suggest import did_you_mean


@pytest.mark.parametrize(
    "name, hint",
    [
        ("lstn", " (did you mean 'lstm'?)"),
        ("mpl", " (did you mean 'mlp'?)"),
        ("LSTM", " (did you mean 'lstm'?)"),
        ("§§§", ""),
    ],
)
def test_the_nearest_name(name, hint):
    assert did_you_mean(name, ("mlp", "lstm", "gru")) == hint
