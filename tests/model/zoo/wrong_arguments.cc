// Its loss takes arguments that no caller has.
#include <elasticdl/model.h>

torch::nn::Linear custom_model() { return torch::nn::Linear(2, 1); }
torch::Tensor loss(const std::string& labels, int predictions) { return {}; }
elasticdl::OptimizerSpec optimizer() { return elasticdl::SGD(0.1); }
elasticdl::Batch feed(const elasticdl::Records&) { return {}; }
