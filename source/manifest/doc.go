// Package manifest turns files of Kubernetes YAML and JSON into events: a folder stands in for the API server.
//
// Invariant: what is emitted, taken together, is always exactly what the files say now. One bad document is one refused
// change that names file, line, object and field; it never hides another document. Two definitions of one object are the
// first one, in sorted order of paths, and a complaint about the second.
//
//	files ─split─▶ documents ─decode─▶ k8s objects ─source/convert─▶ model values ─merge─▶ one list of changes
//	  ▲                  └ positions: file:line of any field                          └ minus what was emitted before
//	  └ fsnotify, debounced
//
// Kinds the agent does not read are passed over, counted, and named at debug level. Fields it does not know are reported
// as a warning and passed over, as an API server does. A file that stops parsing while it is watched (an editor half way
// through) keeps the objects last read from it, and its complaint says so.
package manifest
