// Its loss takes arguments that no caller has.
#include <elasticdl/model.h>

torch::nn::Linear custom_model() { return torch::nn::Linear(2, 1); }
torch::Tensor loss(const std::string& labels, int predictions) { return {}; }
