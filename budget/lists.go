package budget

// firstSplit is the number of rules up to which a run of rules with one action is one access list. Beyond, it is as many lists as hold
// perList rules each, but at most fewLists as long as none of them has more than longList rules, and mostLists in any case.
const (
	firstSplit = 256
	perList    = 128
	fewLists   = 8
	longList   = 4096
	mostLists  = 32
)

// Lists returns how many access lists a run of so many rules with one action becomes: 1 to 32. The driver renderer/acl splits runs by this
// function, so a claim counts the lists that VPP gets.
//
// VPP counts all rules of an interface anew for each list that it attaches or detaches, so more lists make a switch of the interface longer
// (ADR 20), and each takes one of the 255 places of an interface. Fewer lists make the message of one longer. The result depends on the
// number alone, so a set that grows over a power of two rewrites its lists once.
func Lists(rules int) int {
	n := 1
	for rules > firstSplit && (n < fewLists && n*perList < rules || n < mostLists && n*longList < rules) {
		n *= 2
	}
	return n
}
