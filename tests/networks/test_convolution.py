import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from helpers import small_config
from nnx_ppo_fn import (
    CategoricalSampler,
    check_module,
    CompositionError,
    Concat,
    Dense,
    envs,
    Flattener,
    Lift,
    make_conv_encoder,
    PPOAdapter,
    Sequential,
    train_ppo,
)
from nnx_ppo_fn.networks.convolution import Pixels


def convolution(image, weight, bias, stride):
    """In float64, window by window: an image `[C, H, W]`, weights `[O, C, k, k]`."""
    kernel = weight.shape[-1]
    height, width = ((side - kernel) // stride + 1 for side in image.shape[1:])
    out = np.zeros((len(weight), height, width))
    for row in range(height):
        for column in range(width):
            top, left = row * stride, column * stride
            patch = image[:, top : top + kernel, left : left + kernel]
            out[:, row, column] = np.sum(weight * patch, axis=(1, 2, 3))
    return out + bias


def test_the_encoder_is_convolutions_and_a_dense_layer(getkey):
    encoder = make_conv_encoder(
        (6, 7, 2),
        3,
        key=getkey(),
        channels=(4, 2),
        kernel_sizes=(3, 2),
        strides=(1, 2),
        activation="tanh",
    )
    images = jr.normal(getkey(), (2, 6, 7, 2))
    expected = []
    for image in np.float64(images).transpose(0, 3, 1, 2):
        for index, stride in ((1, 1), (3, 2)):
            layer = encoder[index].layer.layer
            weight, bias = np.float64(layer.weight), np.float64(layer.bias)
            image = np.tanh(convolution(image, weight, bias, stride))
        dense = encoder[-1]
        expected.append(np.tanh(image.ravel() @ np.float64(dense.kernel) + dense.bias))
    result = encoder(encoder.initialize_state(jr.split(getkey(), 2)), images)
    np.testing.assert_allclose(result.output, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        (jnp.array([0, 51, 255], jnp.uint8), [0, 0.2, 1]),
        (jnp.array([0, 1, 300], jnp.int32), [0, 1, 300]),
        (jnp.array([False, True, True]), [0, 1, 1]),
        (jnp.array([0.5, -1, 255], jnp.float32), [0.5, -1, 255]),
    ],
)
def test_pixels_become_floats_with_channels_first(image, expected):
    images = jnp.broadcast_to(image, (2, 5, 4, 3))
    pixels = Pixels(5, 4, 3)((), images).output
    assert pixels.dtype == jnp.float32 and pixels.shape == (2, 3, 5, 4)
    np.testing.assert_allclose(pixels[:, :, 2, 1], [expected] * 2, rtol=1e-6)
    same = Pixels(5, 4, 3, channels_last=False)((), jnp.moveaxis(images, -1, 1))
    np.testing.assert_array_equal(same.output, pixels)


def test_pixels_keep_the_precision_of_floats():
    images = jnp.ones((1, 2, 2, 1), jnp.bfloat16)
    assert Pixels(2, 2, 1)((), images).output.dtype == jnp.bfloat16


@pytest.mark.parametrize(
    ("channels_last", "expected"), [(True, "5, 4, 3"), (False, "3, 5, 4")]
)
def test_images_of_another_shape_are_refused(getkey, channels_last, expected):
    encoder = make_conv_encoder(
        (5, 4, 3), 2, key=getkey(), channels=(1,), channels_last=channels_last
    )
    with pytest.raises(CompositionError, match=rf"\[B, {expected}\], got \[2, 4, 4, 3"):
        encoder(encoder.initialize_state(jr.split(getkey(), 2)), jnp.ones((2, 4, 4, 3)))


def test_initial_weights_are_those_of_flax(getkey):
    nnx = pytest.importorskip("flax.nnx")

    encoder = make_conv_encoder((3, 3, 40), 2, key=getkey(), channels=(300,))
    ours = encoder[1].layer.layer
    theirs = nnx.Conv(40, 300, (3, 3), rngs=nnx.Rngs(0))
    # LeCun-normal, cut at two standard deviations: variance 1 / fan-in.
    assert abs(np.std(ours.weight) * (9 * 40) ** 0.5 - 1) < 0.02
    assert abs(np.std(ours.weight) / np.std(theirs.kernel[...]) - 1) < 0.02
    assert not np.any(ours.bias)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"channels": (2, 2, 2), "kernel_sizes": 4, "strides": 2},
            "too small: 10 x 12 -> 4 x 5 -> 1 x 1, and convolution 2 has kernels of 4",
        ),
        ({"kernel_sizes": (3, 3, 3)}, r"each of the 2 channels, .* got \(3, 3, 3\)"),
        ({"strides": 0}, "expected strides to be one number, .* got 0"),
        ({"channels": ()}, r"expected channels of one convolution or more, .*\(\)"),
        ({"channels": (2, 0)}, "each at least 1"),
        ({"image_shape": (10, 12)}, r"\(height, width, channels\), .* got \(10, 12\)"),
        ({"activation": "sine"}, "unknown activation 'sine'"),
    ],
)
def test_sizes_that_make_no_encoder_are_refused(getkey, options, message):
    with pytest.raises(ValueError, match=message):
        make_conv_encoder(
            **({"image_shape": (10, 12, 1)} | options), features=2, key=getkey()
        )


def test_images_beside_numbers_obey_the_laws(getkey):
    network = Concat(
        image=make_conv_encoder((3, 3, 1), 2, key=getkey(), channels=(2,)),
        speed=Flattener(),
    )
    x = {
        "image": jr.randint(getkey(), (4, 3, 3, 1), 0, 255).astype(jnp.uint8),
        "speed": jnp.ones((4, 2)),
    }
    result = network(network.initialize_state(jr.split(getkey(), 4)), x)
    assert result.output.shape == (4, 4)
    check_module(network, x, key=getkey(), length=4)


def test_an_encoder_learns_from_images(getkey):
    pytest.importorskip("gymnax")
    env = envs.make("gymnax:Breakout-MinAtar")
    encoder = make_conv_encoder(
        (10, 10, 4), 8, key=getkey(), channels=(4, 2), strides=(1, 2)
    )
    policy = Sequential([Dense(8, 3, key=getkey()), CategoricalSampler(0.01)])
    network = Sequential([encoder, PPOAdapter(policy, Dense(8, 1, key=getkey()))])
    result = train_ppo(env, network, small_config(n_envs=4, total_steps=60))
    before, after = network[0], result.network[0]
    for index in (1, 3):
        assert isinstance(before[index], Lift)
        kernels = [network[index].layer.layer.weight for network in (before, after)]
        assert jnp.any(kernels[0] != kernels[1])
    assert float(result.final_metrics["replay/log_ratio_max"]) < 1e-4


@pytest.mark.parametrize("of_weights", [jnp.float32, jnp.bfloat16])
def test_images_of_any_precision_meet_the_kernels_in_theirs(of_weights, getkey):
    encoder = make_conv_encoder((3, 3, 1), 2, key=getkey(), channels=(2,))
    encoder = jax.tree.map(
        lambda leaf: leaf.astype(of_weights) if eqx.is_inexact_array(leaf) else leaf,
        encoder,
    )
    for of_image in (jnp.bfloat16, jnp.float16, jnp.float32, jnp.uint8, jnp.int32):
        images = jnp.ones((2, 3, 3, 1), of_image)
        out = encoder(encoder.initialize_state(jr.split(getkey(), 2)), images).output
        same = jnp.ones((2, 3, 3, 1)) / (255 if of_image == jnp.uint8 else 1)
        expected = encoder(((),) * len(encoder), same).output
        assert out.dtype == of_weights
        np.testing.assert_array_equal(np.float32(out), np.float32(expected))
