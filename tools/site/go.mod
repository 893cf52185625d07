module github.com/contiv-agent/contiv-agent/tools/site

go 1.26.0

require github.com/yuin/goldmark v1.8.7

require golang.org/x/net v0.62.0
