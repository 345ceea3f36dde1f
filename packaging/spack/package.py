# SPDX-License-Identifier: Apache-2.0
# package.py: the recipe for Spack. In spack-packages it is builtin/packages/zoff/package.py.
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Zoff(CMakePackage, CudaPackage):
    """A library that holds the fp32 master weights and optimizer states of a training run in
    DRAM and on NVMe, and runs the optimizer step there."""

    homepage = "https://zoff.invalid"  # scripts/release --url
    url = f"{homepage}/zoff-0.1.0.tar.xz"

    license("Apache-2.0", checked_by="The zoff authors")

    version("0.1.0", sha256="0000000000000000000000000000000000000000000000000000000000000000")

    variant("mpi", default=True, description="Build the plug-in for MPI")
    variant("ucx", default=True, description="Build the plug-in for UCX")
    variant("nccl", default=False, when="+cuda", description="Build the plug-in for NCCL")
    variant("libzip", default=True, description="Let the command read and write files of PyTorch")
    variant("tests", default=False, description="Build the tests")

    generator("ninja")

    depends_on("c", type="build")
    depends_on("cxx", type="build", when="+tests")
    depends_on("cxx", type="build", when="+cuda")
    depends_on("cmake@3.25:", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("liburing")
    depends_on("numactl")
    depends_on("jansson")
    depends_on("xxhash")
    depends_on("libzip@1.6:", when="+libzip")
    depends_on("mpi@3:", when="+mpi")
    depends_on("ucx@1.11:", when="+ucx")
    depends_on("cuda@12:", when="+cuda")
    depends_on("nccl@2.18:", when="+nccl")
    depends_on("googletest", type="build", when="+tests")
    depends_on("python@3.9:", type="build", when="+tests")

    requires("platform=linux", msg="zoff needs io_uring")

    def cmake_args(self):
        args = [
            self.define_from_variant("ZOFF_MPI", "mpi"),
            self.define_from_variant("ZOFF_UCX", "ucx"),
            self.define_from_variant("ZOFF_CUDA", "cuda"),
            self.define_from_variant("ZOFF_NCCL", "nccl"),
            self.define_from_variant("ZOFF_LIBZIP", "libzip"),
            self.define_from_variant("ZOFF_TESTS", "tests"),
        ]
        if self.spec.satisfies("+cuda") and not self.spec.satisfies("cuda_arch=none"):
            args.append(self.define_cuda_architectures(self))
        return args

    # The plug-ins for CUDA and the tests are targets of their own.
    @property
    def build_targets(self):
        targets = ["all"]
        if self.spec.satisfies("+cuda"):
            targets.append("cuda")
        if self.spec.satisfies("+tests"):
            targets.append("check")
        return targets

    def test_selftest(self):
        """compare the results of kernels and of an engine with the reference"""
        which(self.prefix.bin.zoff, required=True)("selftest")
