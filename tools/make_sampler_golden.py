#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Write tests/golden/sampler.safetensors: the trajectories of diffusers' solvers on an analytic velocity.

    tools/make_sampler_golden.py OUTPUT

The velocity is v(x, t) = 0.8 x - 0.0005 t + x / (1 + x^2), t the time step that the model would be given. Sigmas are
f32, as diffusers keeps them; everything made from them is float64 here, so that the file is an oracle for any
implementation of the same sums. Tensors: `noise` [24], and for each run SOLVER_GRID_STEPS_SHIFT the `.sigmas`,
`.timesteps` (float64) and `.x` [steps, 24] after every step.
"""
import sys

import torch
from diffusers import UniPCMultistepScheduler
from safetensors.torch import save_file

from make_golden import scheduler_for

RUNS = [(1, 3.0), (2, 5.0), (3, 1.0), (4, 0.5), (5, 12.0), (8, 3.0), (13, 7.0), (40, 12.0)]


def velocity(x, t):
    return 0.8 * x - 0.0005 * t + x / (1 + x * x)


def run(solver, grid, steps, shift, noise):
    config = UniPCMultistepScheduler(prediction_type="flow_prediction", use_flow_sigmas=True, solver_order=2)
    s = scheduler_for({"scheduler": config}, solver, grid, steps, shift)
    sigmas, timesteps = s.sigmas.clone(), s.timesteps.clone()
    s.sigmas = s.sigmas.double()
    x, trace = noise[None].clone(), []
    s.set_begin_index(0)                      # time steps may repeat
    for t in timesteps:
        v = velocity(x, t.double())
        if solver == "euler":                 # diffusers' own step rounds to f32
            i = len(trace)
            x = x + (s.sigmas[i + 1] - s.sigmas[i]) * v
        else:
            x = s.step(v, t, x, return_dict=False)[0]
        trace.append(x[0].float())
    return {"sigmas": sigmas.float(), "timesteps": timesteps.double(), "x": torch.stack(trace)}


def main():
    torch.manual_seed(5)
    noise = torch.randn(24, dtype=torch.float32)
    tensors = {"noise": noise}
    for solver in ("unipc", "euler"):
        for grid in ("official", "diffusers"):
            for steps, shift in RUNS:
                for name, value in run(solver, grid, steps, shift, noise.double()).items():
                    tensors[f"{solver}_{grid}_{steps}_{shift:g}.{name}"] = value.contiguous()
    save_file(tensors, sys.argv[1])


if __name__ == "__main__":
    main()
