package serving

// Timeouts are how long VPP keeps idle sessions of NAT44, in seconds. A zero one is the agent's default.
type Timeouts struct{ UDP, TCPEstablished, TCPTransitory, ICMP uint32 }

// Timeout is one of them.
type Timeout struct {
	Name    string
	Seconds uint32
}

// Each returns the timeouts with the defaults of docs/man/contiv-agent-run.1 for zero ones.
func (t Timeouts) Each() []Timeout {
	list := t.byName()
	for i, standard := range []uint32{60, 7440, 120, 30} {
		if list[i].Seconds == 0 {
			list[i].Seconds = standard
		}
	}
	return list
}

// Of returns the timeout with a name of Each; zero is zero.
func (t Timeouts) Of(name string) uint32 {
	for _, one := range t.byName() {
		if one.Name == name {
			return one.Seconds
		}
	}
	return 0
}

func (t Timeouts) byName() []Timeout {
	return []Timeout{{"UDP", t.UDP}, {"established TCP", t.TCPEstablished}, {"opening or closing TCP", t.TCPTransitory}, {"ICMP", t.ICMP}}
}
