/* A pipeline's insides; its interface is ithaca/wan.h. */
#ifndef ITH_WAN_PIPELINE_H
#define ITH_WAN_PIPELINE_H

#include "model.h"
#include "tokenizer.h"

struct ith_pipeline {
    ith_context *context;
    ith_model *model;
    ith_tokenizer *tokenizer;
};

#endif
