// Package startup turns a folder into the command line of a VPP, real or simulated, that tests and demonstrations start.
//
// Invariant: VPP uses no huge pages, no network card and nothing outside its folder.
package startup

import (
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"time"
)

// API and Stats are the sockets in the folder.
const (
	API   = "api.sock"
	Stats = "stats.sock"
)

// VPP are the arguments of a real VPP with these plugins beside those that every agent needs, and threads that forward; 0: the main thread
// does.
func VPP(dir string, workers int, plugins ...string) []string {
	args := []string{
		"unix", "{", "nodaemon", "cli-listen", dir + "/cli.sock", "runtime-dir", dir, "log", dir + "/vpp.log", "poll-sleep-usec", "50", "}",
		"api-segment", "{", "prefix", fmt.Sprintf("contiv%d", time.Now().UnixNano()), "global-size", "64M", "api-size", "16M", "}",
		"socksvr", "{", "socket-name", filepath.Join(dir, API), "}",
		"statseg", "{", "socket-name", filepath.Join(dir, Stats), "size", "64M", "page-size", "4k", "}",
		"memory", "{", "main-heap-size", "2G", "main-heap-page-size", "4k", "}",
		"buffers", "{", "buffers-per-numa", "16384", "page-size", "4k", "}",
		"plugins", "{", "plugin", "default", "{", "disable", "}",
	}
	for _, name := range slices.Concat([]string{"nat_plugin.so", "af_packet_plugin.so", "acl_plugin.so", "ping_plugin.so", "cnat_plugin.so"}, plugins) {
		args = append(args, "plugin", name, "{", "enable", "}")
	}
	args = append(args, "}", "acl-plugin", "{", "reclassify", "sessions", "1", "}")
	if workers > 0 {
		args = append(args, "cpu", "{", "main-core", "0", "workers", strconv.Itoa(workers), "}")
	}
	return args
}

// Simulated are the arguments of contiv-agent as a VPP with host interfaces.
func Simulated(dir string) []string {
	return []string{"sim", "--host-interfaces", "--socket", filepath.Join(dir, API)}
}
