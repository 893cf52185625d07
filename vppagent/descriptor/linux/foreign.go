package linux

import (
	"fmt"
	"strings"

	"github.com/google/nftables"
)

// ForwardDrops returns the foreign chains of the packet filter, "family table chain", that drop forwarded packets unless a rule accepts them. own is the
// path of the network namespace; "": the process's. The error says that the kernel has no packet filter, or that it may not be read.
func ForwardDrops(own string) (out []string, _ error) {
	h := &handles{own: own}
	defer h.close()
	c, err := h.filter()
	if err != nil {
		return nil, err
	}
	for family, name := range map[nftables.TableFamily]string{nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6"} {
		chains, err := c.ListChainsOfTableFamily(family)
		if err != nil {
			return nil, fmt.Errorf("list the chains of the packet filter: %w", err)
		}
		for _, chain := range chains {
			forward := chain.Hooknum != nil && *chain.Hooknum == *nftables.ChainHookForward
			if forward && chain.Policy != nil && *chain.Policy == nftables.ChainPolicyDrop && !strings.HasPrefix(chain.Table.Name, Table) {
				out = append(out, fmt.Sprintf("%s %s %s", name, chain.Table.Name, chain.Name))
			}
		}
	}
	return out, nil
}
