# Writes the page's files into a C++ source: cmake -DOUTPUT= -DSOURCE_DIR=
# "-DSCRIPTS=a.js,b.js" -DVERSION= -P bundle.cmake
string(REPLACE "," ";" SCRIPTS "${SCRIPTS}")
file(READ ${SOURCE_DIR}/page.html html)
file(READ ${SOURCE_DIR}/page.css style)
# One function around all of them: they share names with each other, not with
# the browser.
set(script "(() => {\n\"use strict\";\n")
foreach(name IN LISTS SCRIPTS)
  file(READ ${SOURCE_DIR}/${name} text)
  string(APPEND script "${text}")
endforeach()
string(APPEND script "})();\n")

set(code "// Made from src/page/web by bundle.cmake.\n")
string(APPEND code "#include \"elasticdl/page/files.h\"\n\n")
string(APPEND code "namespace elasticdl::page {\n")
function(add_file function path type text)
  string(SHA256 hash "${text}")
  if(text MATCHES "\\)~~~\"")
    message(FATAL_ERROR "${path} holds the mark of the end of a C++ string")
  endif()
  set(code "${code}const File& ${function}() {
  static constexpr File kFile = {\"${path}\", \"${type}\",
R\"~~~(${text})~~~\",
\"${hash}\"};
  return kFile;
}
" PARENT_SCOPE)
endfunction()
add_file(Html /page.html "text/html; charset=utf-8" "${html}")
add_file(Style /page.css "text/css; charset=utf-8" "${style}")
add_file(Script /page.js "text/javascript; charset=utf-8" "${script}")
string(APPEND code "}  // namespace elasticdl::page\n")
file(WRITE ${OUTPUT} "${code}")
