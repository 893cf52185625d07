package space

// Boxes is the set of the headers of two boxes: all headers of a family, as change restricts them.
func Boxes(s *Space, change func(*Box)) Set {
	four, six := All4(), All6()
	change(&four)
	change(&six)
	return s.Union(s.Box(four), s.Box(six))
}

// OfProtocol is the set of all headers of a protocol.
func OfProtocol(s *Space, number uint16) Set {
	return Boxes(s, func(b *Box) { b.Protocols = One(number) })
}

// Echo is the set of all echo requests, of ICMP over IPv4 and of ICMPv6 over IPv6.
func Echo(s *Space) Set {
	four, six := All4(), All6()
	four.Protocols, four.SrcPorts, four.DstPorts = One(ICMP), One(8), One(0)
	six.Protocols, six.SrcPorts, six.DstPorts = One(ICMPv6), One(128), One(0)
	return s.Union(s.Box(four), s.Box(six))
}

// Narrow returns the headers that a set and the first of the preferred sets have in common, among those that have one in common with it. If none
// has, it returns the set.
func Narrow(s *Space, set Set, preferred ...Set) Set {
	for _, p := range preferred {
		if both := s.Intersect(set, p); !both.Empty() {
			return both
		}
	}
	return set
}
