// Package manifest turns files of Kubernetes YAML and JSON into events: a folder takes the place of the API server.
//
// Invariant: all emitted changes taken together equal the current content of the files. A broken document becomes one
// refused change that names file, line, object and field, and does not affect any other document. If an object is defined
// twice, the first definition in sorted order of paths counts, and the second is refused.
//
//	files ─split─▶ documents ─decode─▶ k8s objects ─source/convert─▶ model values ─merge─▶ one list of changes
//	  ▲                  └ positions: file:line of any field                          └ minus what was emitted before
//	  └ fsnotify, debounced
//
// The source skips and counts kinds that the agent does not read, and logs them at debug level. It ignores unknown fields
// with a warning, as an API server does. If a watched file stops parsing, as while an editor writes it, the source keeps
// the objects last read from it and says so in the error.
package manifest
