#!/bin/sh
# Builds a libcudnn.so.9 with every function that libtorch-cuda calls; all of them
# fail. So libtorch loads, and code that needs cuDNN gets an error that says why.
# For docker/Dockerfile.gpu with CUDNN=none; needs g++ and libtorch-cuda.
set -eu
libraries=/usr/lib/x86_64-linux-gnu
source=/tmp/cudnn-stub.c

# 1 is CUDNN_STATUS_NOT_INITIALIZED.
nm -D --undefined-only $libraries/libtorch_cuda.so |
  sed -nE 's/^ *U (cudnn[A-Za-z0-9_]+).*/\1/p' | sort -u |
  grep -vxE 'cudnnGet(Version|CudartVersion|ErrorString)' |
  sed 's/.*/int &(void) { return 1; }/' > $source
cat >> $source << 'TEXT'
unsigned long cudnnGetVersion(void) { return 0; }
unsigned long cudnnGetCudartVersion(void) { return 0; }
const char* cudnnGetErrorString(int code) {
  return code == 0 ? "no error" : "this image was built without cuDNN";
}
TEXT
# libtorch looks up the symbols with the version that cuDNN gives them.
echo 'libcudnn.so.9 { cudnn*; };' > $source.map
gcc -O1 -shared -fPIC -Wl,-soname,libcudnn.so.9 \
  -Wl,--version-script=$source.map -o $libraries/libcudnn.so.9 $source
rm $source $source.map
