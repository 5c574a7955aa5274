/* SPDX-License-Identifier: Apache-2.0 */
/* Says whether a run shares out its weights (team.h). */
#include "team.h"

bool ith_shards_weights(const ith_generate_options *options, const ith_team *team)
{
    return options->shard_weights && (team->hosts > 1 || team->lends);
}
