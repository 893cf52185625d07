package v3

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/contiv-agent/contiv-agent/model"
	"github.com/contiv-agent/contiv-agent/selector"
)

// The JSON of ports and protocols is Calico's: numbers where possible. A port that is not one has no model.
func TestPortsAndProtocols(t *testing.T) {
	for _, c := range []struct {
		in, out string
		port    string // PortText of its model; "" for none
	}{
		{`80`, `80`, "80"},
		{`"80"`, `80`, "80"},
		{`"080"`, `80`, "80"},
		{`"80:90"`, `"80:90"`, "80:90"},
		{`"7:7"`, `"7:7"`, "7"},
		{`"http"`, `"http"`, "http"},
		{`0`, `0`, "0"},
		{`"-5"`, `"-5"`, "-5"},
		{`-5`, `"-5"`, ""},
		{`70000`, `"70000"`, ""},
		{`"99999"`, `"99999"`, ""},
		{`"90:80"`, `"90:80"`, ""},
		{`"80:"`, `"80:"`, ""},
		{`"a:b"`, `"a:b"`, ""},
		{`"a b"`, `"a b"`, ""},
		{`""`, `""`, ""},
		{`null`, `""`, ""},
	} {
		var p Port
		if err := json.Unmarshal([]byte(c.in), &p); err != nil {
			t.Fatalf("%s: %v", c.in, err)
		}
		if out, err := json.Marshal(p); err != nil || string(out) != c.out {
			t.Errorf("%s is written as %s, %v; want %s", c.in, out, err, c.out)
		}
		m, ok := p.Model()
		if ok != (c.port != "") || ok && PortText(m) != c.port {
			t.Errorf("%s is %+v, %v; want %q", c.in, m, ok, c.port)
		}
	}
	for _, c := range []struct {
		in, out string
		want    model.RuleProtocol // zero: not a protocol
	}{
		{`"TCP"`, `"TCP"`, model.RuleProtocol{Name: "tcp"}},
		{`"UDPLite"`, `"UDPLite"`, model.RuleProtocol{Name: "udplite"}},
		{`6`, `6`, model.RuleProtocol{Number: 6}},
		{`"6"`, `6`, model.RuleProtocol{Number: 6}},
		{`0`, `0`, model.RuleProtocol{}},
		{`300`, `"300"`, model.RuleProtocol{}},
		{`"foo"`, `"foo"`, model.RuleProtocol{}},
	} {
		p := &Protocol{}
		if err := json.Unmarshal([]byte(c.in), p); err != nil {
			t.Fatalf("%s: %v", c.in, err)
		}
		if out, err := json.Marshal(p); err != nil || string(out) != c.out {
			t.Errorf("%s is written as %s, %v; want %s", c.in, out, err, c.out)
		}
		if m, ok := p.Model(); m != c.want || ok != (c.want != model.RuleProtocol{}) {
			t.Errorf("%s is %+v, %v; want %+v", c.in, m, ok, c.want)
		}
	}
	if m, ok := (*Protocol)(nil).Model(); m != (model.RuleProtocol{}) || !ok {
		t.Errorf("no protocol is %+v, %v; want any", m, ok)
	}
}

func TestNets(t *testing.T) {
	for in, want := range map[string]string{
		"10.1.2.3/16": "10.1.0.0/16", "10.0.0.1": "10.0.0.1/32", "fd00::1": "fd00::1/128", "::ffff:1.2.3.4": "1.2.3.4/32",
		"x": "", "": "", "10.0.0.0/33": "", " 10.0.0.0/8": "",
	} {
		p, ok := ParseNet(in)
		if ok != (want != "") || ok && p.String() != want {
			t.Errorf("%q is %v, %v; want %q", in, p, ok, want)
		}
	}
}

// Each condition of one side of a rule is part of its selector, and a policy in a namespace means this namespace.
func TestPeerSelector(t *testing.T) {
	const ns = "projectcalico.org/namespace == 'prod'"
	accounts := &Accounts{Names: []string{"b", "a"}, Selector: "role == 'x'"}
	for _, c := range []struct {
		name   string
		in     Entity
		local  string // in namespace prod
		global string // in a cluster-wide policy
	}{
		{"anyone", Entity{}, "", ""},
		{"labels", Entity{Selector: "app == 'web'"}, "(" + ns + ") && (app == 'web')", "app == 'web'"},
		{"not these labels", Entity{NotSelector: "has(x)"}, ns, ""},
		{"namespaces", Entity{NamespaceSelector: "team == 'a'"}, `pcns.team == "a"`, `pcns.team == "a"`},
		{"any namespace", Entity{NamespaceSelector: "all()"}, "has(projectcalico.org/namespace)", "has(projectcalico.org/namespace)"},
		{"no namespace", Entity{NamespaceSelector: "global()", Selector: "x == 'y'"}, "(!has(projectcalico.org/namespace)) && (x == 'y')", "(!has(projectcalico.org/namespace)) && (x == 'y')"},
		{
			"accounts",
			Entity{ServiceAccounts: accounts},
			"(" + ns + `) && ((pcsa.role == "x") && (projectcalico.org/serviceaccount in {"a", "b"}))`,
			`(pcsa.role == "x") && (projectcalico.org/serviceaccount in {"a", "b"})`,
		},
		{
			"accounts and labels",
			Entity{ServiceAccounts: &Accounts{Selector: "has(r)"}, Selector: "has(x)"},
			"(" + ns + ") && ((has(pcsa.r)) && (has(x)))", "(has(pcsa.r)) && (has(x))",
		},
	} {
		for namespace, want := range map[string]string{"prod": c.local, "": c.global} {
			if got, err := c.in.PeerSelector(namespace); got != want || err != nil {
				t.Errorf("%s in %q:\n%s, %v\nwant %s", c.name, namespace, got, err, want)
			}
		}
	}
}

// A cluster-wide policy that selects by namespace or service account applies only to endpoints that have one.
func TestSubject(t *testing.T) {
	for _, c := range []struct {
		in            GlobalSpec
		local, global string
	}{
		{GlobalSpec{}, "projectcalico.org/namespace == 'prod'", ""},
		{GlobalSpec{Spec: Spec{Selector: "has(a)"}}, "(has(a)) && projectcalico.org/namespace == 'prod'", "has(a)"},
		{
			GlobalSpec{Spec: Spec{Selector: "all()", ServiceAccountSelector: "r == 's'"}},
			`((all()) && projectcalico.org/namespace == 'prod') && pcsa.r == "s"`, `(has(projectcalico.org/serviceaccount)) && pcsa.r == "s"`,
		},
	} {
		for namespace, want := range map[string]string{"prod": c.local, "": c.global} {
			if got, err := c.in.Subject(namespace); got != want || err != nil {
				t.Errorf("%+v in %q:\n%s, %v\nwant %s", c.in, namespace, got, err, want)
			}
		}
	}
	in := GlobalSpec{Spec: Spec{Selector: "has(a)"}, NamespaceSelector: "all()"}
	if got, err := in.Subject(""); got != "(has(a)) && has(projectcalico.org/namespace)" || err != nil {
		t.Error(got, err)
	}
}

// A selector that does not parse is an error of the selector language, wherever it is.
func TestBadSelectors(t *testing.T) {
	const bad = "(("
	entities := []Entity{{NamespaceSelector: bad}, {ServiceAccounts: &Accounts{Selector: bad}}, {ServiceAccounts: &Accounts{Names: []string{"it's"}}}}
	var errs []error
	for i := range entities {
		_, err := entities[i].PeerSelector("prod")
		errs = append(errs, err)
	}
	for _, s := range []GlobalSpec{{NamespaceSelector: bad}, {Spec: Spec{ServiceAccountSelector: bad}}} {
		_, err := s.Subject("")
		errs = append(errs, err)
	}
	for i, err := range errs {
		if _, ok := errors.AsType[*selector.SyntaxError](err); !ok {
			t.Errorf("case %d: %v", i, err)
		}
	}
}

// A port that is read has a text that reads as the same port.
func FuzzParsePort(f *testing.F) {
	for _, text := range []string{"80", "80:90", "http", "90:80", "99999", "0:0", "-1", "1:x", ":"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		m, ok := ParsePort(text)
		if !ok {
			return
		}
		if m.Name != "" && (digits(m.Name) || strings.Contains(m.Name, ":")) || m.Name == "" && m.First > m.Last {
			t.Fatalf("%q is %+v", text, m)
		}
		if again, ok := ParsePort(PortText(m)); again != m || !ok {
			t.Fatalf("%q is %+v, whose text is %+v", text, m, again)
		}
	})
}
