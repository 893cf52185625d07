package nat44ed

import "testing"

// The results of a real VPP 24.06 with the same configuration: two weight-0 pads and one backend, first packets after start.
func TestPadsAndHairpinAsMeasured(t *testing.T) {
	l := service(t)
	l.lb(pad(1), pad(2), local("10.1.1.3", 1))
	l.want(l.in(podA, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [S]")
	l.want(l.in(podB, "tcp 10.1.1.3:8080 -> 10.1.1.2:4000 [SA]"), "tcp 10.96.0.10:80 -> 10.1.1.2:4000 [SA]")
	l.want(l.in(podA, "tcp 10.1.1.2:4000 -> 10.96.0.10:80 [A]"), "tcp 10.1.1.2:4000 -> 10.1.1.3:8080 [A]")
	l.want(l.in(podA, "tcp 10.1.1.2:4001 -> 10.96.0.10:80 [S]"), "tcp 10.1.1.2:4001 -> 10.1.1.3:8080 [S]")
	// Three picks, then a port: the fourth number of VPP's generator, 22324 on the real one.
	l.want(l.in(podB, "tcp 10.1.1.3:4002 -> 10.96.0.10:80 [S]"), "tcp 10.2.1.254:22324 -> 10.1.1.3:8080 [S]")
	l.want(l.in(podB, "tcp 10.1.1.3:8080 -> 10.2.1.254:22324 [SA]"), "tcp 10.96.0.10:80 -> 10.1.1.3:4002 [SA]")
	l.want(l.in(podA, "tcp 10.1.1.2:5000 -> 10.1.1.3:8080 [S]"), "tcp 10.1.1.2:5000 -> 10.1.1.3:8080 [S]")
	if got := len(l.Sessions()); got != 3 {
		t.Errorf("%d sessions, want 3: %v", got, l.Sessions())
	}
}
