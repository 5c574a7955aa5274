/* SPDX-License-Identifier: Apache-2.0 */
/* Replaces names of members by options (member_names.h). */
#include "member_names.h"

#include <stdio.h>
#include <string.h>

/* Members that no other word of a message is like. The names of most others are also the names of their options. */
static const struct {
    const char *member, *option;
} names[] = {
    {"dit_high", "--dit-high"},
    {"dit_low", "--dit-low"},
    {"shard_weights", "--shard-weights"},
    {"keep_packed", "--keep-packed"},
    {"device_memory", "--device-memory"},
    {"from_latents", "--from-latents"},
    {"last_image", "--last-image"},
    {"noise_file", "--noise"},
    {"dump_file", "--dump"},
    {"checkpoint_file", "--checkpoint"},
    {"checkpoint_every", "--checkpoint-every"},
    {"resume_file", "--resume"},
    {"preview_every", "--preview-every"},
    {"block_q", "--block-q"},
    {"block_kv", "--block-kv"},
    {"block_kv_compute", "--block-kv-compute"},
    {"block_kv_compute_in", "--block-kv-compute-in"},
};

/* The index of the member whose name is the first word of a text; -1: the word is another one. A word before a colon is
 * a key of a YAML file, as the user wrote it. */
static int member_at(const char *text, size_t *length)
{
    *length = strspn(text, "abcdefghijklmnopqrstuvwxyz_");
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strlen(names[i].member) == *length && !strncmp(text, names[i].member, *length) &&
            (!text[*length] || strchr(" ,;.)", text[*length])))
            return i;
    return -1;
}

void ith_member_names_replace(const char *sentence, char *out, size_t bytes)
{
    size_t used = 0;
    for (const char *at = sentence; *at && used + 1 < bytes;) {
        size_t length;
        const int member = at == sentence || at[-1] == ' ' || at[-1] == '(' ? member_at(at, &length) : -1;
        if (member < 0)
            used += (size_t)snprintf(out + used, bytes - used, "%c", *at++);
        else
            used += (size_t)snprintf(out + used, bytes - used, "%s", names[member].option), at += length;
    }
    out[used < bytes ? used : bytes - 1] = '\0';
}
