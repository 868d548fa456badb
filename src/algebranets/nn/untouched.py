"""torch.nn's classes and modules that work on tuples as they are.

They act on each number, each channel or each position by itself, or on all numbers alike, or contain other layers.
`tests/test_torch_nn.py` checks that every class of torch.nn is here, has a version over an algebra, or is refused.
Each name is written three times, because type checkers cannot derive one list from another. The same test checks that
the lists are equal.
"""
# fmt: off
# ruff: noqa: I001

from torch.nn import (
    AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d, AdaptiveMaxPool3d,
    AlphaDropout, AvgPool1d, AvgPool2d, AvgPool3d, BCELoss, BCEWithLogitsLoss, BatchNorm1d, BatchNorm2d, BatchNorm3d,
    Buffer, CELU, CTCLoss, CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d, ConstantPad2d, ConstantPad3d,
    Container, CosineEmbeddingLoss, CosineSimilarity, CrossEntropyLoss, DataParallel, Dropout, Dropout1d, Dropout2d,
    Dropout3d, ELU, FeatureAlphaDropout, Flatten, Fold, FractionalMaxPool2d, FractionalMaxPool3d, GELU, GaussianNLLLoss,
    Hardshrink, Hardsigmoid, Hardswish, Hardtanh, HingeEmbeddingLoss, HuberLoss, Identity, KLDivLoss, L1Loss, LPPool1d,
    LPPool2d, LPPool3d, LayerNorm, LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d, LeakyReLU, LogSigmoid, LogSoftmax,
    MSELoss, MarginRankingLoss, MaxPool1d, MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d, Mish, Module,
    ModuleDict, ModuleList, MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NLLLoss, NLLLoss2d, PReLU,
    PairwiseDistance, Parameter, ParameterDict, ParameterList, PoissonNLLLoss, RReLU, ReLU, ReLU6, ReflectionPad1d,
    ReflectionPad2d, ReflectionPad3d, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, SELU, Sequential, SiLU,
    Sigmoid, SmoothL1Loss, SoftMarginLoss, Softmax, Softmax2d, Softmin, Softplus, Softshrink, Softsign, SyncBatchNorm,
    Tanh, Tanhshrink, Threshold, TransformerDecoder, TripletMarginLoss, TripletMarginWithDistanceLoss, Unflatten,
    Unfold, UninitializedBuffer, UninitializedParameter, Upsample, UpsamplingBilinear2d, UpsamplingNearest2d, ZeroPad1d,
    ZeroPad2d, ZeroPad3d, attention, common_types, parallel, parameter,
)

__all__ = [  # noqa: RUF022
    "AdaptiveAvgPool1d", "AdaptiveAvgPool2d", "AdaptiveAvgPool3d", "AdaptiveMaxPool1d", "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d", "AlphaDropout", "AvgPool1d", "AvgPool2d", "AvgPool3d", "BCELoss", "BCEWithLogitsLoss",
    "BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "Buffer", "CELU", "CTCLoss", "CircularPad1d", "CircularPad2d",
    "CircularPad3d", "ConstantPad1d", "ConstantPad2d", "ConstantPad3d", "Container", "CosineEmbeddingLoss",
    "CosineSimilarity", "CrossEntropyLoss", "DataParallel", "Dropout", "Dropout1d", "Dropout2d", "Dropout3d", "ELU",
    "FeatureAlphaDropout", "Flatten", "Fold", "FractionalMaxPool2d", "FractionalMaxPool3d", "GELU", "GaussianNLLLoss",
    "Hardshrink", "Hardsigmoid", "Hardswish", "Hardtanh", "HingeEmbeddingLoss", "HuberLoss", "Identity", "KLDivLoss",
    "L1Loss", "LPPool1d", "LPPool2d", "LPPool3d", "LayerNorm", "LazyBatchNorm1d", "LazyBatchNorm2d", "LazyBatchNorm3d",
    "LeakyReLU", "LogSigmoid", "LogSoftmax", "MSELoss", "MarginRankingLoss", "MaxPool1d", "MaxPool2d", "MaxPool3d",
    "MaxUnpool1d", "MaxUnpool2d", "MaxUnpool3d", "Mish", "Module", "ModuleDict", "ModuleList", "MultiLabelMarginLoss",
    "MultiLabelSoftMarginLoss", "MultiMarginLoss", "NLLLoss", "NLLLoss2d", "PReLU", "PairwiseDistance", "Parameter",
    "ParameterDict", "ParameterList", "PoissonNLLLoss", "RReLU", "ReLU", "ReLU6", "ReflectionPad1d", "ReflectionPad2d",
    "ReflectionPad3d", "ReplicationPad1d", "ReplicationPad2d", "ReplicationPad3d", "SELU", "Sequential", "SiLU",
    "Sigmoid", "SmoothL1Loss", "SoftMarginLoss", "Softmax", "Softmax2d", "Softmin", "Softplus", "Softshrink",
    "Softsign", "SyncBatchNorm", "Tanh", "Tanhshrink", "Threshold", "TransformerDecoder", "TripletMarginLoss",
    "TripletMarginWithDistanceLoss", "Unflatten", "Unfold", "UninitializedBuffer", "UninitializedParameter", "Upsample",
    "UpsamplingBilinear2d", "UpsamplingNearest2d", "ZeroPad1d", "ZeroPad2d", "ZeroPad3d", "attention", "common_types",
    "parallel", "parameter",
]


class Untouched:
    """The same names as attributes of a class, for `algebranets.over`."""

    from torch.nn import (
        AdaptiveAvgPool1d, AdaptiveAvgPool2d, AdaptiveAvgPool3d, AdaptiveMaxPool1d, AdaptiveMaxPool2d,
        AdaptiveMaxPool3d, AlphaDropout, AvgPool1d, AvgPool2d, AvgPool3d, BCELoss, BCEWithLogitsLoss, BatchNorm1d,
        BatchNorm2d, BatchNorm3d, Buffer, CELU, CTCLoss, CircularPad1d, CircularPad2d, CircularPad3d, ConstantPad1d,
        ConstantPad2d, ConstantPad3d, Container, CosineEmbeddingLoss, CosineSimilarity, CrossEntropyLoss, DataParallel,
        Dropout, Dropout1d, Dropout2d, Dropout3d, ELU, FeatureAlphaDropout, Flatten, Fold, FractionalMaxPool2d,
        FractionalMaxPool3d, GELU, GaussianNLLLoss, Hardshrink, Hardsigmoid, Hardswish, Hardtanh, HingeEmbeddingLoss,
        HuberLoss, Identity, KLDivLoss, L1Loss, LPPool1d, LPPool2d, LPPool3d, LayerNorm, LazyBatchNorm1d,
        LazyBatchNorm2d, LazyBatchNorm3d, LeakyReLU, LogSigmoid, LogSoftmax, MSELoss, MarginRankingLoss, MaxPool1d,
        MaxPool2d, MaxPool3d, MaxUnpool1d, MaxUnpool2d, MaxUnpool3d, Mish, Module, ModuleDict, ModuleList,
        MultiLabelMarginLoss, MultiLabelSoftMarginLoss, MultiMarginLoss, NLLLoss, NLLLoss2d, PReLU, PairwiseDistance,
        Parameter, ParameterDict, ParameterList, PoissonNLLLoss, RReLU, ReLU, ReLU6, ReflectionPad1d, ReflectionPad2d,
        ReflectionPad3d, ReplicationPad1d, ReplicationPad2d, ReplicationPad3d, SELU, Sequential, SiLU, Sigmoid,
        SmoothL1Loss, SoftMarginLoss, Softmax, Softmax2d, Softmin, Softplus, Softshrink, Softsign, SyncBatchNorm, Tanh,
        Tanhshrink, Threshold, TransformerDecoder, TripletMarginLoss, TripletMarginWithDistanceLoss, Unflatten, Unfold,
        UninitializedBuffer, UninitializedParameter, Upsample, UpsamplingBilinear2d, UpsamplingNearest2d, ZeroPad1d,
        ZeroPad2d, ZeroPad3d, attention, common_types, parallel, parameter,
    )
