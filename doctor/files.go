package doctor

import (
	"fmt"
	"os"
	"strings"

	interfaces "go.fd.io/govpp/binapi/interface"
)

// readAtOnce is the number of files that VPP 25.06 and later read at once. If so many stay readable, VPP never returns to its main loop, and only
// there does it read the frames of af_packet interfaces (vlib_file_poll in src/vlib/file.c; test/realvpp executes it).
const readAtOnce = 16

// EpollLibrary is the name of the library, made of deploy/vpp/epoll.c, with which VPP reads one file less at once than it asks for.
const EpollLibrary = "epoll.so"

func filesReadOnce() release { return release{25, 6} }

// hostInterfaces checks that the number of af_packet interfaces cannot stop VPP. A VPP that has no such fault has no such check.
func hostInterfaces(f *facts) []Check {
	v, ok := parseRelease(f.state.Version)
	if !ok || v.before(filesReadOnce()) {
		return nil
	}
	n := 0
	for _, d := range f.replies[askInterfaces].Details {
		if i, ok := d.(*interfaces.SwInterfaceDetails); ok && i.InterfaceDevType == "af-packet" {
			n++
		}
	}
	c := Check{Name: "host interfaces", Verdict: OK, Found: fmt.Sprintf("%d af_packet interfaces", n), Facts: Facts{"interfaces": n}}
	if n < readAtOnce {
		return []Check{c}
	}
	loaded, known := preloaded(f.maps)
	if c.Facts["limit"] = readAtOnce; known {
		c.Facts["library"], c.Facts["loaded"] = EpollLibrary, loaded
	}
	switch {
	case !known:
		c.Verdict = Unknown
		c.Consequence = fmt.Sprintf("VPP's process is not visible from here: with %d or more such interfaces it needs the library %s of deploy/vpp/epoll.c", readAtOnce, EpollLibrary)
	case loaded:
		c.Found += ", with the library " + EpollLibrary
	default:
		c.Verdict = Dangerous
		c.Consequence = fmt.Sprintf("VPP neither forwards nor answers any more as soon as %d of them have received a frame at once (VPP 25.06 to 26.06), for example while it makes another interface", readAtOnce)
		c.Command = "LD_PRELOAD=/path/to/" + EpollLibrary + " vpp -c startup.conf, with the library of deploy/vpp/epoll.c"
	}
	return []Check{c}
}

// readMaps returns the list of files that a process has mapped; "": it is not visible.
func readMaps(pid uint32) string {
	b, _ := os.ReadFile(fmt.Sprintf("/proc/%d/maps", pid)) // VPP may run on another machine, or as another user
	return string(b)
}

// preloaded reports whether a process has the library; known is false if the process is not a visible VPP.
func preloaded(maps string) (loaded, known bool) {
	return strings.Contains(maps, "/"+EpollLibrary+"\n"), strings.Contains(maps, "/libvlib.so")
}
