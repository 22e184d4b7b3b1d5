# SPDX-License-Identifier: Apache-2.0
"""Recipe of Tutti for Spack 1.0 or newer, for a source tree that is there already (tools/package/recipes/README.md)."""
from spack_repo.builtin.build_systems.cmake import CMakePackage, generator
from spack_repo.builtin.build_systems.cuda import CudaPackage

from spack.package import *


class Tutti(CMakePackage, CudaPackage):
    """Collective communication between threads, processes and hosts: algorithms emit schedules that are proved before they run,
    transports are plugins that are found at run time."""

    license("Apache-2.0")

    version("0.1.0")

    variant("ib", default=False, description="Transport for InfiniBand and RoCE adapters")
    variant("pmix", default=False, description="Ranks meet over PMIx")
    variant("tools", default=True, description="tuttirun, tutti-perf and the other programs")
    variant("python", default=False, when="+tools", description="Python package tutti")
    variant("torch", default=False, when="+python", description="Backend of torch.distributed")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("cmake@3.25:", type="build")
    depends_on("ninja", type="build")
    depends_on("fmt@9:")
    depends_on("openssl@3:")
    depends_on("nlohmann-json@3.11:", type="build")
    depends_on("boost@1.74:", type="build")
    depends_on("xxhash", type="build")
    depends_on("cli11", type="build")
    depends_on("zlib-api", type="build")
    depends_on("help2man", type="build", when="+tools")
    depends_on("rdma-core", when="+ib")
    depends_on("pmix", when="+pmix")
    depends_on("python@3.9:", type=("build", "link", "run"), when="+python")
    depends_on("py-pybind11", type="build", when="+python")
    depends_on("py-numpy", type="run", when="+python")
    depends_on("py-torch", type=("build", "link", "run"), when="+torch")

    conflicts("%gcc@:11", msg="Tutti is C++20: expected gcc 12 or newer")

    generator("ninja")

    def cmake_args(self):
        members = ["core", "plugins/sdk", "plugins/algorithms", "plugins/shm", "plugins/cuda-ipc", "plugins/template",
                   "plugins/checksum", "plugins/trace", "plugins/chaos", "plugins/meetings", "net-tcp"]
        for variant, member in (("+ib", "net-ib"), ("+cuda", "cuda-kernels"), ("+tools", "tools")):
            if self.spec.satisfies(variant):
                members.append(member)
        arguments = [
            self.define("TUTTI_MEMBERS", members),
            self.define("TUTTI_BUILD_TESTS", self.run_tests),
            self.define("TUTTI_BUILD_BENCHES", False),
        ]
        if self.spec.satisfies("+cuda"):
            arguments.append(self.define("CMAKE_CUDA_ARCHITECTURES", self.spec.variants["cuda_arch"].value))
        if self.spec.satisfies("+python"):
            arguments.append(self.define("Python3_EXECUTABLE", self.spec["python"].command.path))
        else:
            arguments.append(self.define("CMAKE_DISABLE_FIND_PACKAGE_pybind11", True))
        return arguments

    def setup_run_environment(self, env):
        if self.spec.satisfies("+python"):
            env.prepend_path("PYTHONPATH", join_path(self.prefix, "lib", "python3", "dist-packages"))
