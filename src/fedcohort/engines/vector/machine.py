"""From LLVM's language to this processor's."""

import platform
from typing import Any

import llvmlite
import llvmlite.binding as llvm

from fedcohort.engines.vector.kept import KeptCode

# Kernels are unrolled as they are written, so little is left to be found. LLVM's usual passes take six times
# as long as these, and what they make is no faster.
PASSES = "sroa", "simplify_cfg", "instruction_combine", "loop_rotate", "instruction_combine"


def usual_lanes() -> int:
    """How many numbers a vector has here: 16 with AVX-512, else 8; 0 where multiplying and adding are two
    steps, and nothing would be won."""
    features = llvm.get_host_cpu_features()
    if platform.machine() in ("x86_64", "AMD64") and not (features.get("avx2") and features.get("fma")):
        return 0
    return 16 if features.get("avx512f") else 8


def compiled(text: str, lanes: int) -> Any:
    """Machine code, which lives as long as what is returned; with 8 lanes as for a processor without
    AVX-512."""
    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    cpu = llvm.get_host_cpu_name()
    features = llvm.get_host_cpu_features().flatten() + ("" if lanes == 16 else ",-avx512f")
    target = llvm.Target.from_default_triple().create_target_machine(
        cpu=cpu, features=features, opt=2, jit=True
    )
    kept = KeptCode("\n".join([llvmlite.__version__, target.triple, cpu, features, *PASSES, text]))
    module, code = llvm.parse_assembly(text), kept.read()
    module.verify()
    if code is None:
        passes = llvm.create_new_module_pass_manager()
        for name in PASSES:
            getattr(passes, f"add_{name}_pass")()
        passes.run(module, llvm.create_pass_builder(target, llvm.create_pipeline_tuning_options()))
    engine = llvm.create_mcjit_compiler(module, target)
    engine.set_object_cache(lambda _, made: kept.write(made), lambda _: code)
    engine.finalize_object()
    return engine
