// A model file that does not compile, though it has all functions.
#include <elasticdl/model.h>

torch::nn::Sequential custom_model() { return no_such_thing; }
torch::Tensor loss(const torch::Tensor& labels, const torch::Tensor& outputs);
elasticdl::OptimizerSpec optimizer();
elasticdl::Batch feed(const elasticdl::Records& records, elasticdl::Mode mode);
