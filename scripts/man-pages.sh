#!/usr/bin/env bash
# Makes manual pages from the help of the client.
#   scripts/man-pages.sh PATH/elasticdl FOLDER
set -euo pipefail

program=$1
folder=$2
mkdir -p "$folder"
date=$(date -u -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}" +%Y-%m-%d)
version=$("$program" --version | sed -n '1s/^elasticdl \([^ ]*\).*/\1/p')

# The help of a command as a page: its first paragraph says what it does, the
# rest is shown as it is.
page() {
  local name=$1 text summary
  shift
  text=$("$program" "$@" --help)
  summary=$(printf '%s\n' "$text" | sed -n '/./{p;q}')
  {
    printf '.TH "%s" 1 "%s" "ElasticDL %s" "User Commands"\n' "${name^^}" "$date" "$version"
    printf '.SH NAME\n%s \\- %s\n' "$name" "$(escape <<< "${summary%.}")"
    printf '.SH SYNOPSIS\n.B elasticdl%s\n.I [flags]\n' "${*:+ $*}"
    printf '.SH DESCRIPTION\n.nf\n'
    printf '%s\n' "$text" | escape
    printf '.fi\n.SH SEE ALSO\n.BR elasticdl (1)\n'
  } | gzip -9n > "$folder/$name.1.gz"
}

# Backslashes, and lines that would be taken for requests.
escape() {
  sed -e 's/\\/\\e/g' -e 's/-/\\-/g' -e "s/^\([.']\)/\\\\\&\1/"
}

page elasticdl
"$program" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z]*\) .*/\1/p' | while read -r command; do
  page "elasticdl-$command" "$command"
done
