// Files of small images: MNIST's IDX files and CIFAR-10's binary ones.
#include "absl/strings/str_cat.h"
#include "official/data_check/file_checks.h"
#include "official/mnist/dataset.h"
#include "official/resnet/cifar10/dataset.h"
#include "utils/compute/core/status.h"

namespace official::data_check {
namespace {

// Of IDX files of labels: 4 bytes of magic number and 4 of the number of labels.
constexpr int64_t kLabelsHeaderBytes = 8;

// DataLoss of the whole file is a finding.
absl::Status Found(const absl::Status& status, Findings& findings) {
  if (!absl::IsDataLoss(status)) return status;
  findings.Bad({.message = std::string(status.message())});
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckIdx(Findings& findings) {
  const std::string& path = findings.path();
  findings.SetContents("IDX");
  // A file of another magic number than that of labels is read as one of images, whose error says so.
  absl::StatusOr<compute::Tensor> labels = mnist::ReadMnistLabels(path);
  if (absl::IsDataLoss(labels.status())) {
    const absl::StatusOr<compute::Tensor> images = mnist::ReadMnistImages(path);
    if (images.ok()) {
      findings.SetContents("IDX of images");
      findings.Count(images->shape().dim(0));
      return absl::OkStatus();
    }
    if (!absl::IsDataLoss(images.status())) return images.status();
    const bool is_labels = labels.status().message().find("magic number") == std::string::npos;
    return Found(is_labels ? labels.status() : images.status(), findings);
  }
  RETURN_IF_ERROR(labels.status());
  findings.SetContents("IDX of labels");
  const auto values = labels->flat<uint8_t>();
  findings.Count(static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) {
    const absl::Status status = mnist::CheckMnistLabel(path, i, values[i]);
    if (status.ok()) continue;
    findings.Bad({.record = i, .offset = kLabelsHeaderBytes + i, .message = std::string(status.message())});
  }
  return absl::OkStatus();
}

absl::Status CheckCifar10(Findings& findings) {
  const std::string& path = findings.path();
  findings.SetContents("CIFAR-10");
  return Found(resnet::ReadCifar10File(path,
                                       [&](int64_t number, uint8_t label, const uint8_t*) {
                                         findings.Count(1);
                                         findings.Progress(resnet::kCifar10RecordBytes);
                                         const absl::Status status = resnet::CheckCifar10Label(path, number, label);
                                         if (!status.ok()) {
                                           findings.Bad({.record = number,
                                                         .offset = number * resnet::kCifar10RecordBytes,
                                                         .message = std::string(status.message())});
                                         }
                                         return absl::OkStatus();
                                       }),
               findings);
}

}  // namespace official::data_check
