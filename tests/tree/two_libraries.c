/* SPDX-License-Identifier: Apache-2.0 */
/* A program on the shared libraries. It opens the model that its argument names, and prints the status and the
 * sentence: a failure in libithaca_wan must have its sentence where libithaca shows it. */
#include <ithaca/files.h>
#include <ithaca/wan.h>

#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    ith_context *context = NULL;
    ith_pipeline *pipeline = NULL;
    ith_tensor_file *file = NULL;
    if (argc != 2 || ith_context_create(NULL, &context))
        return 2;
    if (ith_pipeline_check(NULL) != ITH_ERR_ARGUMENT || strcmp(ith_context_error(NULL), "pipeline is NULL"))
        return 3;
    if (ith_tensor_file_open(NULL, "x", &file) != ITH_ERR_ARGUMENT ||
        strcmp(ith_context_error(NULL), "context is NULL"))
        return 4;
    if (ith_plan_execute(NULL, NULL) != ITH_ERR_ARGUMENT || strcmp(ith_context_error(NULL), "plan is NULL"))
        return 5;
    if (ith_tensor_file_open(context, "/nowhere", &file) != ITH_ERR_IO ||
        !strstr(ith_context_error(context), "/nowhere"))
        return 6;
    ith_status status = ith_pipeline_open(context, argv[1], &pipeline);
    printf("%s: %s\n", ith_status_name(status), status ? ith_context_error(context) : "");
    ith_context_destroy(&context); /* before the objects that were made with it */
    ith_pipeline_close(&pipeline);
    return 0;
}
