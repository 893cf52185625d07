package linux

import (
	"strings"

	"github.com/google/nftables"
)

// RouteProtocol marks our routes.
const RouteProtocol = protocol

// Marked reports that a link has an agent's alias.
func Marked(alias string) bool { return strings.HasPrefix(alias, ourAlias) }

// SpareName reports that a link has the name of an end of a veth that an agent has made and not named yet.
func SpareName(name string) bool {
	return strings.HasPrefix(name, spareBegins) && len(name) == len(spare(""))
}

// OwnTable is a table of the packet filter that agents make. A table with this name is an agent's if it has a chain whose name begins with Sign.
type OwnTable struct {
	Name, Sign string
	Family     nftables.TableFamily
}

// MarkedTable is a table with a fingerprint.
func MarkedTable(name string, family nftables.TableFamily) OwnTable {
	return OwnTable{name, markPrefix, family}
}

// OwnTables are the tables of this package.
func OwnTables() []OwnTable {
	return []OwnTable{
		MarkedTable(table, nftables.TableFamilyINet), MarkedTable(table, nftables.TableFamilyARP),
		{portTable, portHooks()[0].name, nftables.TableFamilyINet},
	}
}
