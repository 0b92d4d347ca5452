"""AlexNet's top-1 errors in the ImageNet testbed (paper 001), for its two families of ImageNet-C.

They follow from the accuracies in the testbed's public table (modestyachts/imagenet-testbed, release 28477dc). Its
files from disk are resized once more, and its other images are corrupted in memory: both are other measurements than
ImageNet-C as published, whose AlexNet errors are in ``corruption``. Errors are fractions by severity, 1 to 5, rounded
to six places. In memory there is no glass blur, and AlexNet's accuracy under zoom blur at severity 1 is that without
corruption, as released.
"""

from __future__ import annotations

#: The released files of ImageNet-C, resized as the testbed does.
TESTBED_ON_DISK_ERRORS: dict[str, tuple[float, float, float, float, float]] = {
    "gaussian_noise": (0.694526, 0.842583, 0.949001, 0.985400, 0.996220),
    "shot_noise": (0.717746, 0.866163, 0.948081, 0.985340, 0.993120),
    "impulse_noise": (0.792384, 0.914182, 0.958461, 0.990360, 0.996580),
    "defocus_blur": (0.701566, 0.777384, 0.883362, 0.932441, 0.958161),
    "glass_blur": (0.672307, 0.772865, 0.893682, 0.921462, 0.944121),
    "motion_blur": (0.624188, 0.731985, 0.839923, 0.907802, 0.932801),
    "zoom_blur": (0.706206, 0.768685, 0.806844, 0.838923, 0.867303),
    "snow": (0.732225, 0.888862, 0.873943, 0.926021, 0.950661),
    "frost": (0.638307, 0.807264, 0.893282, 0.903082, 0.936861),
    "fog": (0.702406, 0.784744, 0.859723, 0.885722, 0.951581),
    "brightness": (0.482770, 0.518370, 0.572869, 0.654147, 0.754045),
    "contrast": (0.682166, 0.791864, 0.908222, 0.982360, 0.993660),
    "elastic_transform": (0.556309, 0.720786, 0.597788, 0.675166, 0.826623),
    "pixelate": (0.543069, 0.565949, 0.709406, 0.850963, 0.919462),
    "jpeg_compression": (0.562149, 0.599748, 0.622808, 0.693106, 0.775404),
    "speckle_noise": (0.663867, 0.751485, 0.913642, 0.953201, 0.975920),
    "gaussian_blur": (0.588968, 0.749565, 0.862603, 0.921582, 0.967181),
    "spatter": (0.494950, 0.642327, 0.768845, 0.842683, 0.905102),
    "saturate": (0.622328, 0.683626, 0.542169, 0.732385, 0.840723),
}

#: Images that the testbed corrupted in memory.
TESTBED_IN_MEMORY_ERRORS: dict[str, tuple[float, float, float, float, float]] = {
    "gaussian_noise": (0.656487, 0.794384, 0.922102, 0.978540, 0.994440),
    "shot_noise": (0.675586, 0.821564, 0.922842, 0.979660, 0.990640),
    "impulse_noise": (0.752285, 0.877122, 0.937161, 0.985900, 0.995260),
    "defocus_blur": (0.647940, 0.728900, 0.848400, 0.911000, 0.944180),
    "motion_blur": (0.578828, 0.699326, 0.821704, 0.899482, 0.927301),
    "zoom_blur": (0.434780, 0.782040, 0.820040, 0.852380, 0.869820),
    "snow": (0.749840, 0.854880, 0.850620, 0.910620, 0.941440),
    "frost": (0.611608, 0.794224, 0.883882, 0.897202, 0.932461),
    "fog": (0.658987, 0.744305, 0.828263, 0.857443, 0.936381),
    "brightness": (0.447131, 0.480930, 0.534749, 0.613308, 0.715886),
    "contrast": (0.627207, 0.740925, 0.873863, 0.972021, 0.991940),
    "elastic_transform": (0.516820, 0.698600, 0.548020, 0.634260, 0.805380),
    "pixelate": (0.562189, 0.536549, 0.806304, 0.894982, 0.908842),
    "jpeg_compression": (0.512390, 0.549269, 0.577508, 0.656247, 0.749945),
    "speckle_noise": (0.628747, 0.712866, 0.886562, 0.937101, 0.969461),
    "gaussian_blur": (0.503550, 0.672827, 0.797224, 0.880762, 0.950961),
    "spatter": (0.484310, 0.618868, 0.683546, 0.850143, 0.895682),
    "saturate": (0.586568, 0.653827, 0.510550, 0.704186, 0.823124),
}
