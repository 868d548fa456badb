"""torch.nn.functional's functions that work on tuples as they are.

They act on each number, each channel or each position by itself, or on all numbers alike. `tests/test_functional.py`
checks that every function of torch.nn.functional is here, has a version over an algebra, or is refused.
"""
# fmt: off
# ruff: noqa: I001

from torch.nn.functional import (  # type: ignore[attr-defined]  # torch has no types for threshold_
    adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d, adaptive_max_pool1d,
    adaptive_max_pool1d_with_indices, adaptive_max_pool2d, adaptive_max_pool2d_with_indices, adaptive_max_pool3d,
    adaptive_max_pool3d_with_indices, affine_grid, alpha_dropout, avg_pool1d, avg_pool2d, avg_pool3d, batch_norm,
    binary_cross_entropy, binary_cross_entropy_with_logits, celu, celu_, cosine_embedding_loss, cosine_similarity,
    cross_entropy, ctc_loss, dropout, dropout1d, dropout2d, dropout3d, elu, elu_, embedding, embedding_bag,
    feature_alpha_dropout, fold, fractional_max_pool2d, fractional_max_pool2d_with_indices, fractional_max_pool3d,
    fractional_max_pool3d_with_indices, gaussian_nll_loss, gelu, grid_sample, gumbel_softmax, hardshrink,
    hardsigmoid, hardswish, hardtanh, hardtanh_, hinge_embedding_loss, huber_loss, interpolate, kl_div, l1_loss,
    layer_norm, leaky_relu, leaky_relu_, log_softmax, logsigmoid, lp_pool1d, lp_pool2d, lp_pool3d,
    margin_ranking_loss, max_pool1d, max_pool1d_with_indices, max_pool2d, max_pool2d_with_indices, max_pool3d,
    max_pool3d_with_indices, max_unpool1d, max_unpool2d, max_unpool3d, mish, mse_loss, multi_margin_loss,
    multilabel_margin_loss, multilabel_soft_margin_loss, nll_loss, normalize, one_hot, pad, pairwise_distance,
    pdist, poisson_nll_loss, prelu, relu, relu6, relu_, rrelu, rrelu_, scaled_dot_product_attention, selu, selu_,
    sigmoid, silu, smooth_l1_loss, soft_margin_loss, softmax, softmin, softplus, softshrink, softsign, tanh,
    tanhshrink, threshold, threshold_, triplet_margin_loss, triplet_margin_with_distance_loss, unfold, upsample,
    upsample_bilinear, upsample_nearest,
)

__all__ = [
    "adaptive_avg_pool1d", "adaptive_avg_pool2d", "adaptive_avg_pool3d", "adaptive_max_pool1d",
    "adaptive_max_pool1d_with_indices", "adaptive_max_pool2d", "adaptive_max_pool2d_with_indices",
    "adaptive_max_pool3d", "adaptive_max_pool3d_with_indices", "affine_grid", "alpha_dropout", "avg_pool1d",
    "avg_pool2d", "avg_pool3d", "batch_norm", "binary_cross_entropy", "binary_cross_entropy_with_logits", "celu",
    "celu_", "cosine_embedding_loss", "cosine_similarity", "cross_entropy", "ctc_loss", "dropout", "dropout1d",
    "dropout2d", "dropout3d", "elu", "elu_", "embedding", "embedding_bag", "feature_alpha_dropout", "fold",
    "fractional_max_pool2d", "fractional_max_pool2d_with_indices", "fractional_max_pool3d",
    "fractional_max_pool3d_with_indices", "gaussian_nll_loss", "gelu", "grid_sample", "gumbel_softmax",
    "hardshrink", "hardsigmoid", "hardswish", "hardtanh", "hardtanh_", "hinge_embedding_loss", "huber_loss",
    "interpolate", "kl_div", "l1_loss", "layer_norm", "leaky_relu", "leaky_relu_", "log_softmax", "logsigmoid",
    "lp_pool1d", "lp_pool2d", "lp_pool3d", "margin_ranking_loss", "max_pool1d", "max_pool1d_with_indices",
    "max_pool2d", "max_pool2d_with_indices", "max_pool3d", "max_pool3d_with_indices", "max_unpool1d",
    "max_unpool2d", "max_unpool3d", "mish", "mse_loss", "multi_margin_loss", "multilabel_margin_loss",
    "multilabel_soft_margin_loss", "nll_loss", "normalize", "one_hot", "pad", "pairwise_distance", "pdist",
    "poisson_nll_loss", "prelu", "relu", "relu6", "relu_", "rrelu", "rrelu_", "scaled_dot_product_attention",
    "selu", "selu_", "sigmoid", "silu", "smooth_l1_loss", "soft_margin_loss", "softmax", "softmin", "softplus",
    "softshrink", "softsign", "tanh", "tanhshrink", "threshold", "threshold_", "triplet_margin_loss",
    "triplet_margin_with_distance_loss", "unfold", "upsample", "upsample_bilinear", "upsample_nearest",
]
