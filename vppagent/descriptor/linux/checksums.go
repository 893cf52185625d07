package linux

import (
	"golang.org/x/sys/unix"

	"github.com/contiv-agent/contiv-agent/vppagent/descriptor/linux/ethtool"
)

// A veth passes packets on without checksums, which the receiving stack of the same kernel does not check. VPP's af_packet takes frames as they
// are, so a packet for another machine would have none. The kernel also stops to build segments larger than the MTU then.

// wholeChecksums reports whether the kernel computes the checksums of packets that it sends by a link.
func (h *handle) wholeChecksums(link string) (bool, error) {
	offloaded, err := ethtool.In(int(h.ns), link, unix.ETHTOOL_GTXCSUM, 0)
	return offloaded == 0, Wrap("read the checksum offload of "+link, err)
}

func (h *handle) setWholeChecksums(link string, on bool) error {
	offloaded := uint32(1)
	if on {
		offloaded = 0
	}
	_, err := ethtool.In(int(h.ns), link, unix.ETHTOOL_STXCSUM, offloaded)
	return Wrap("set the checksum offload of "+link, err)
}
