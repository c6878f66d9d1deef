# One interface target carries every compile option, so that no room differs from another.
# -ffp-contract=off and the absence of -march=native keep results bit-identical across hosts.
add_library(orrery_options INTERFACE)
target_compile_features(orrery_options INTERFACE cxx_std_20)
set(warnings -Wall -Wextra -Wconversion -Wshadow -Wnon-virtual-dtor -Wold-style-cast
  -ffp-contract=off $<$<BOOL:${ORRERY_WERROR}>:-Werror>
  $<$<NOT:$<CONFIG:Release>>:-D_GLIBCXX_ASSERTIONS>)
target_compile_options(orrery_options INTERFACE "$<$<COMPILE_LANGUAGE:CXX>:${warnings}>")
# The headers alone fill GCC's heap, which it then searches for garbage again and again: 8 % of its
# time on a batch of search/per_block/.
target_compile_options(orrery_options INTERFACE
  "$<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:SHELL:--param ggc-min-heapsize=1048576>")
# GCC takes the files of a unity build for headers: their helpers are nobody else's all the same.
target_compile_options(orrery_options INTERFACE
  $<$<AND:$<COMPILE_LANGUAGE:CXX>,$<CXX_COMPILER_ID:GNU>>:-Wno-subobject-linkage>)
if(ORRERY_SANITIZE)
  target_compile_options(orrery_options INTERFACE
    -fsanitize=${ORRERY_SANITIZE} -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(orrery_options INTERFACE -fsanitize=${ORRERY_SANITIZE})
endif()
