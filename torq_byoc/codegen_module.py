"""``relax.ext.torq``: partitions as C-source runtime modules, TVM's own codegen path.

The C code carries the packed program and calls the registered runtime, so a build that uses
``relax.transform.RunCodegen`` needs nothing of ours but the runtime at run time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import tvm_ffi

from torq_byoc.npu_model.runtime import RUN_POINTER_FUNCTION

_TEMPLATE = """
#include <tvm/ffi/c_api.h>
static const unsigned char program_{symbol}[] = {{{data}}};
static TVMFFIObjectHandle run_{symbol};
#ifdef __cplusplus
extern "C"
#endif
int __tvm_ffi_{symbol}(void* self, const TVMFFIAny* args, int32_t count, TVMFFIAny* result) {{
  TVMFFIAny values[3 + {arguments}];
  int i;
  if (!run_{symbol}) {{
    TVMFFIByteArray name = {{"{run}", {run_length}}};
    if (TVMFFIFunctionGetGlobal(&name, &run_{symbol}) != 0) return -1;
    if (!run_{symbol}) {{
      TVMFFIErrorSetRaisedFromCStr("RuntimeError", "the torq runtime is missing: import torq_byoc.npu_model");
      return -1;
    }}
  }}
  for (i = 0; i < 3; ++i) {{ values[i].type_index = kTVMFFIInt; values[i].zero_padding = 0; }}
  values[0].v_int64 = (int64_t)(intptr_t)program_{symbol};
  values[1].v_int64 = {size};
  values[2].v_int64 = {inputs};
  for (i = 0; i < count; ++i) values[3 + i] = args[i];
  return TVMFFIFunctionCall(run_{symbol}, values, count + 3, result);
}}
"""


def c_source_modules(functions: Sequence[Any]) -> list[Any]:
    """Compile partitions and wrap each as a runtime module of kind "c"."""
    from torq_byoc.compilation.programs import compile_function

    create = tvm_ffi.get_global_func("runtime.CSourceModuleCreate")
    modules = []
    for function in functions:
        symbol = str(function.attrs["global_symbol"])
        partition = compile_function(symbol, function)
        modules.append(create(_source(symbol, partition.blob, len(function.params), partition), "c", [symbol], []))
    return modules


def _source(symbol: str, blob: bytes, inputs: int, partition: Any) -> str:
    return _TEMPLATE.format(
        symbol=symbol,
        data=",".join(map(str, blob)),
        arguments=inputs + len(partition.program.outputs),
        run=RUN_POINTER_FUNCTION,
        run_length=len(RUN_POINTER_FUNCTION),
        size=len(blob),
        inputs=inputs,
    )
