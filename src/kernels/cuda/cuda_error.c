/* SPDX-License-Identifier: Apache-2.0 */
/* Failures of CUDA's functions as statuses and sentences. */
#include "cuda_device.h"

#include "../../base/count.h"

#include <stdio.h>

/* The meanings of some codes, in words for a user. Other codes have CUDA's own text. */
static const struct {
    cudaError_t error;
    ith_status status;
    const char *reason;
} reasons[] = {
    {cudaErrorMemoryAllocation, ITH_ERR_MEMORY, "there is no memory left for the GPU"},
    {cudaErrorStubLibrary, ITH_ERR_UNSUPPORTED, "this machine has no NVIDIA driver, but a stub of its library"},
    {cudaErrorNoDevice, ITH_ERR_UNSUPPORTED, "the NVIDIA driver finds no GPU; CUDA_VISIBLE_DEVICES may hide it"},
    {cudaErrorInvalidDevice, ITH_ERR_UNSUPPORTED, "there is no such GPU"},
    {cudaErrorInitializationError, ITH_ERR_UNSUPPORTED,
     "CUDA does not start in this process; a child of fork() cannot use a GPU that its parent has used"},
    {cudaErrorSystemNotReady, ITH_ERR_UNSUPPORTED,
     "the GPU's services have not started, such as nvidia-fabricmanager where GPUs are linked by NVSwitch"},
    {cudaErrorSystemDriverMismatch, ITH_ERR_UNSUPPORTED,
     "the NVIDIA driver and its libraries have different versions; restart the machine or the container"},
    {cudaErrorCompatNotSupportedOnDevice, ITH_ERR_UNSUPPORTED,
     "CUDA's compatibility libraries do not support this GPU; use the libraries of its driver"},
    {cudaErrorNoKernelImageForDevice, ITH_ERR_UNSUPPORTED, "this build has no code for this GPU"},
    {cudaErrorUnsupportedPtxVersion, ITH_ERR_UNSUPPORTED,
     "the NVIDIA driver is too old to compile this build's code for this GPU; update it"},
    {cudaErrorJitCompilerNotFound, ITH_ERR_UNSUPPORTED,
     "the NVIDIA driver lacks the compiler that this build needs for this GPU"},
    {cudaErrorJitCompilationDisabled, ITH_ERR_UNSUPPORTED,
     "CUDA_DISABLE_PTX_JIT forbids to compile this build's code for this GPU"},
    {cudaErrorDevicesUnavailable, ITH_ERR_INTERNAL,
     "the GPU is busy: another process uses it alone (its compute mode is exclusive or prohibited)"},
};

/* Whether the process cannot use the device again after this failure: every later call fails in the same way. */
static bool is_lost(cudaError_t error)
{
    switch (error) {
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown: return true;
    default: return false;
    }
}

/* cudaErrorInsufficientDriver has two causes: there is no driver, or it is older than this build. */
static ith_status explain_driver(const char *doing, char *said)
{
    int version = 0;
    if (cudaDriverGetVersion(&version) || version == 0)
        snprintf(said, ITH_DEVICE_SENTENCE, "%s: this machine has no NVIDIA driver", doing);
    else
        snprintf(said, ITH_DEVICE_SENTENCE,
                 "%s: the NVIDIA driver is too old: it supports CUDA %d.%d, and this build needs %d.%d", doing,
                 version / 1000, version % 1000 / 10, CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10);
    return ITH_ERR_UNSUPPORTED;
}

static ith_status explain(cudaError_t error, const char *doing, char *said)
{
    if (error == cudaErrorInsufficientDriver)
        return explain_driver(doing, said);
    for (int i = 0; i < ITH_COUNT(reasons); i++)
        if (reasons[i].error == error) {
            snprintf(said, ITH_DEVICE_SENTENCE, "%s: %s", doing, reasons[i].reason);
            return reasons[i].status;
        }
    if (is_lost(error))
        snprintf(said, ITH_DEVICE_SENTENCE, "%s: work on the GPU failed (%s); this process cannot use the GPU any more",
                 doing, cudaGetErrorString(error));
    else
        snprintf(said, ITH_DEVICE_SENTENCE, "%s: %s", doing, cudaGetErrorString(error));
    return ITH_ERR_INTERNAL;
}

ith_status ith_cuda_check(cudaError_t error, const char *doing, char *said)
{
    if (error == cudaSuccess)
        return ITH_OK;
    cudaGetLastError(); /* this failure is reported here, so the next check of a launch does not report it again */
    return explain(error, doing, said);
}

ith_status ith_cuda_check_launch(const char *doing, char *said)
{
    return ith_cuda_check(cudaGetLastError(), doing, said);
}
