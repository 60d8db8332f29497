// A model file that does not compile.
#include <elasticdl/model.h>

torch::nn::Sequential custom_model() { return no_such_thing; }
