"""The experiments that come with the package."""

from __future__ import annotations

from typing import Any

from shiftbench.hardening.experiments.base import Experiment, ExperimentScale, PaperClaim, Variant, experiments

_TINY_NETWORK = {"architecture": {"name": "resnet-20", "depth": 8, "width": 4}}
_TINY = {"train.epochs": 1, "data.sample": 256, "data.validation": "", "train.batch_size": 64}
#: 0.05 million weights, some 700 images per second and core in training.
_SMALL_NETWORK = {"architecture": {"name": "resnet-20", "depth": 14, "width": 8}}
_SMALL = {"train.epochs": 10, "train.batch_size": 64, "data.sample": 3500, "data.validation": "",
          "schedule.warmup_epochs": 1}  # fmt: skip
_PAPER_SEEDS = 3


def _cifar_corruptions() -> Experiment:
    augmentation = "Diverse Data Augmentation"
    short: dict[str, dict[str, object]] = {
        "standard-half": {"train.epochs": 5},
        "standard-third": {"train.epochs": 3},
        "deepaugment": {"train.equal_steps": True},
        "deepaugment-augmix": {"train.equal_steps": True},
        "pgd": {"scheme.steps": 2},
    }
    tiny: dict[str, dict[str, object]] = {
        "standard-half": {"data.sample": 192},
        "standard-third": {"data.sample": 128},
        "pgd": {"scheme.steps": 1},
    }
    return Experiment(
        "cifar-corruptions",
        "What AugMix, DeepAugment, speckle noise and adversarial training are worth on CIFAR-10-C",
        "cifar-10-train",
        "cifar-10-c",
        (
            Variant("standard", "cifar-standard"),
            Variant("standard-half", "cifar-standard", changes={"train.epochs": 50}),
            Variant("standard-third", "cifar-standard", changes={"train.epochs": 33}),
            Variant("augmix", "cifar-augmix", "standard", augmentation),
            Variant("deepaugment", "cifar-deepaugment", "standard", augmentation),
            Variant("deepaugment-augmix", "cifar-deepaugment-augmix", "standard", augmentation),
            Variant("speckle", "cifar-speckle", "standard", "Noise in Training"),
            Variant("pgd", "cifar-pgd", "standard", "Adversarial Training"),
        ),
        {
            "tiny": ExperimentScale(
                "a ResNet-8 of width 4 on 256 images for an epoch: shows that it runs, and nothing else",
                seeds=2,
                changes={**_TINY_NETWORK, **_TINY, "data.network_steps": 20},
                variants=tiny,
                sample=100,
                severities=(3,),
                corruptions=("gaussian_noise", "defocus_blur", "fog", "contrast"),
            ),
            "small": ExperimentScale(
                "a ResNet-14 of width 8 on 3,500 images for 10 epochs; as many steps with copies as without; PGD with "
                "2 steps instead of 10",
                changes={**_SMALL_NETWORK, **_SMALL, "data.network_steps": 1000},
                variants=short,
                sample=1000,
                severities=(1, 3, 5),
            ),
            "paper": ExperimentScale("the recipes as published; days of GPU time", seeds=_PAPER_SEEDS),
        },
        (
            PaperClaim("AugMix lowers the error under corruptions", "AugMix", "augmix", "standard",
                  published="ImageNet-C, ResNet-50: 76.7 mCE to 65.3"),
            PaperClaim("DeepAugment lowers the error under corruptions", "000", "deepaugment", "standard",
                  published="ImageNet-C, ResNet-50: 76.7 mCE to 60.4"),
            PaperClaim("DeepAugment and AugMix together are better than AugMix alone", "000", "deepaugment-augmix",
                  "augmix", published="ImageNet-C, ResNet-50: 65.3 mCE to 53.6"),
            PaperClaim("Speckle noise in training lowers the error under corruptions", "000", "speckle", "standard",
                  published="ImageNet-C, ResNet-50: 76.7 mCE to 68.3"),
            PaperClaim("Adversarial training costs clean accuracy", "003", "standard", "pgd", "clean",
                  published="ImageNet-200, ResNeXt-50: 89.2 % to 81.9 %"),
        ),
        ("standard", "standard-half", "standard-third"),
    )  # fmt: skip


#: Networks for a processor: the same families, thinner and shallower.
_SMALL_ICON_NETWORKS: dict[str, dict[str, object]] = {
    "resnet-20": {"architecture.width": 8},
    "densenet-40": {"architecture.depth": 16, "architecture.width": 8},
    "resnext-29": {"architecture.depth": 11, "architecture.cardinality": 4, "architecture.width": 4,
                   "architecture.stem": 16},
    "shake-shake": {"architecture.depth": 14, "architecture.width": 8},
    "multiscale": {"architecture.depth": 6, "architecture.width": 4},
}  # fmt: skip
_TINY_ICON_NETWORKS: dict[str, dict[str, object]] = {
    "resnet-20": {"architecture.depth": 8, "architecture.width": 4},
    "densenet-40": {"architecture.depth": 10, "architecture.width": 4},
    "resnext-29": {"architecture.depth": 11, "architecture.cardinality": 2, "architecture.width": 2,
                   "architecture.stem": 8},
    "shake-shake": {"architecture.depth": 8, "architecture.width": 4},
    "multiscale": {"architecture.depth": 4, "architecture.width": 2},
}  # fmt: skip


def _icons(protocol: str, about: str, claims: tuple[PaperClaim, ...]) -> Experiment:
    networks = tuple(_SMALL_ICON_NETWORKS)
    bases = {"densenet-40": "resnet-20", "resnext-29": "resnet-20", "shake-shake": "resnext-29",
             "multiscale": "densenet-40"}  # fmt: skip
    hypotheses = {"densenet-40": "Feature Aggregation", "resnext-29": "Feature Aggregation",
                  "shake-shake": "Shake-Shake", "multiscale": "Multiscale"}  # fmt: skip
    return Experiment(
        f"icons-{protocol}",
        about,
        f"icons/{protocol}.train",
        f"icons-{protocol}",
        tuple(Variant(name, f"icons-{name}", bases.get(name, ""), hypotheses.get(name, "")) for name in networks),
        {
            "tiny": ExperimentScale(
                "networks of a few thousand weights on 500 icons for an epoch: shows that it runs, and nothing else",
                seeds=2,
                changes={"train.epochs": 1, "data.per_class": 10, "train.batch_size": 64},
                variants=_TINY_ICON_NETWORKS,
                sample=200,
            ),
            "small": ExperimentScale(
                "thin and shallow networks of the same families, all training icons, 5 epochs (Shake-Shake too, which "
                "the paper trains ten times as long as others)",
                changes={"train.epochs": 5, "train.batch_size": 64, "schedule.warmup_epochs": 1},
                variants=_SMALL_ICON_NETWORKS,
            ),
            "paper": ExperimentScale("the recipes as published", seeds=_PAPER_SEEDS),
        },
        claims,
        networks,
    )


def _size() -> Experiment:
    return Experiment(
        "size",
        "Are larger networks more robust, beyond being better? (000's first hypothesis, on CIFAR-10-C)",
        "cifar-10-train",
        "cifar-10-c",
        (
            Variant("resnet-20", "cifar-standard", changes={"architecture": {"name": "resnet-20"}}),
            Variant("resnet-56", "cifar-standard", "resnet-20", "Larger Models",
                    {"architecture": {"name": "resnet-56"}}),
            Variant("wrn-16-4", "cifar-standard", "resnet-20", "Larger Models",
                    {"architecture": {"name": "wrn-16-4"}}),
        ),
        _cifar_scales(
            {"resnet-20": {"architecture": {"name": "resnet-20", "depth": 8, "width": 8}},
             "resnet-56": {"architecture": {"name": "resnet-20", "depth": 20, "width": 8}},
             "wrn-16-4": {"architecture": {"name": "resnet-20", "depth": 8, "width": 16}}},
            "ResNets of depth and width 8, of depth 20 (the deeper one) and of width 16 (the wider one)",
        ),
        (
            PaperClaim("Larger networks do better under corruptions", "002, 000", "resnet-56", "resnet-20",
                  published="ImageNet-C, ResNet-50 to ResNet-152: 76.7 mCE to 69.3"),
        ),
        ("resnet-20", "resnet-56", "wrn-16-4"),
    )  # fmt: skip


def _self_attention() -> Experiment:
    attention = "Self-Attention"
    made = {kind: {"architecture": {"name": "resnet-20", "attention": kind}} for kind in ("none", "se", "cbam")}
    small = {kind: {"architecture": {**one["architecture"], "depth": 14, "width": 8}} for kind, one in made.items()}
    return Experiment(
        "self-attention",
        "Does self-attention make networks more robust? (000's second hypothesis, on CIFAR-10-C)",
        "cifar-10-train",
        "cifar-10-c",
        (
            Variant("none", "cifar-standard", changes=made["none"]),
            Variant("se", "cifar-standard", "none", attention, made["se"]),
            Variant("cbam", "cifar-standard", "none", attention, made["cbam"]),
        ),
        _cifar_scales(small, "a ResNet-14 of width 8"),
        (
            PaperClaim("Squeeze-and-excitation does better under corruptions", "000", "se", "none",
                  published="ImageNet-C, ResNet-50: 76.7 mCE to 68.2"),
            PaperClaim("CBAM does better under corruptions", "000", "cbam", "none",
                  published="ImageNet-C, ResNet-50: 76.7 mCE to 70.0"),
        ),
        ("none", "se", "cbam"),
    )  # fmt: skip


def _cifar_scales(networks: dict[str, dict[str, Any]], about: str) -> dict[str, ExperimentScale]:
    tiny = {name: {"architecture": {**change["architecture"], "depth": 8, "width": 4}}
            for name, change in networks.items()}  # fmt: skip
    return {
        "tiny": ExperimentScale(
            "networks of a few thousand weights on 256 images for an epoch: shows that it runs, and nothing else",
            seeds=2,
            changes=_TINY,
            variants=tiny,
            sample=100,
            severities=(3,),
            corruptions=("gaussian_noise", "defocus_blur", "fog", "contrast"),
        ),
        "small": ExperimentScale(
            f"{about}; 3,500 images for 10 epochs",
            changes=_SMALL,
            variants=networks,
            sample=1000,
            severities=(1, 3, 5),
        ),
        "paper": ExperimentScale("the CIFAR-10 recipe of AugMix's comparison, without AugMix", seeds=_PAPER_SEEDS),
    }


for _experiment in (
    _icons(
        "style",
        "Icons in a style that training did not have: does a better network know them better? (002)",
        (
            PaperClaim("A DenseNet does worse than a ResNet on an unseen style", "002", "resnet-20", "densenet-40",
                  published="58.3 % against 48.5 %"),
            PaperClaim("A multiscale network does better than a DenseNet", "002", "multiscale", "densenet-40",
                  published="65.1 % against 48.5 %"),
            PaperClaim("Shake-Shake does better than a ResNeXt", "002", "shake-shake", "resnext-29",
                  published="76.0 % against 51.8 %"),
        ),
    ),
    _icons(
        "subtype",
        "Icons of subtypes that training did not have (002)",
        (
            PaperClaim("A ResNeXt does better than a ResNet on unseen subtypes", "002", "resnext-29", "resnet-20",
                  published="60.0 % against 57.5 %"),
            PaperClaim("Shake-Shake does better than a ResNeXt", "002", "shake-shake", "resnext-29",
                  published="63.6 % against 60.0 %"),
        ),
    ),
    _cifar_corruptions(),
    _size(),
    _self_attention(),
):  # fmt: skip
    experiments.add(_experiment.name, _experiment)
