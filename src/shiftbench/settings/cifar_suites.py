"""CIFAR-10 and the test sets that were made to be like it; CIFAR-100."""

from __future__ import annotations

from shiftbench.settings.base import Setting, SuiteOptions, suite

#: Setting, and where its file lies below the folder that fills the role.
_NEW_TEST_SETS = {
    "cifar-10.1-v4": "cifar-10.1/cifar10.1_v4_data.npy",
    "cifar-10.1-v6": "cifar-10.1/cifar10.1_v6_data.npy",
    "cifar-10.2": "cifar-10.2/cifar102_test.npz",
}


@suite("cifar")
def cifar(options: SuiteOptions) -> list[Setting]:
    """The CIFAR-10 test set, CIFAR-10.1 v4 and v6, and CIFAR-10.2, for classifiers of CIFAR-10."""
    new = [Setting(name, place, reference="cifar-10", optional=True) for name, place in _NEW_TEST_SETS.items()]
    return [Setting("cifar-10", "cifar-10"), *new]


@suite("cifar-100")
def cifar_100(options: SuiteOptions) -> list[Setting]:
    """The CIFAR-100 test set."""
    return [Setting("cifar-100", "cifar-100")]
