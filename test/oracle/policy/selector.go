package policy

import (
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// matches reads a Kubernetes label selector: all of it must hold; NotIn holds for objects without the label.
func matches(s *metav1.LabelSelector, labels map[string]string) bool {
	if s == nil {
		return false
	}
	for k, v := range s.MatchLabels {
		if got, has := labels[k]; !has || got != v {
			return false
		}
	}
	for _, e := range s.MatchExpressions {
		value, has := labels[e.Key]
		in := has && slices.Contains(e.Values, value)
		var ok bool
		switch e.Operator {
		case metav1.LabelSelectorOpIn:
			ok = in
		case metav1.LabelSelectorOpNotIn:
			ok = !in
		case metav1.LabelSelectorOpExists:
			ok = has
		case metav1.LabelSelectorOpDoesNotExist:
			ok = !has
		}
		if !ok {
			return false
		}
	}
	return true
}

// expression is a selector of Calico's, ready to be asked.
type expression func(labels map[string]string) bool

// parse reads a selector of Calico's. Comparisons with a label that is not there are false, but != and not in are true.
func parse(text string) (expression, error) {
	p := &parser{rest: text}
	e, err := p.or()
	if err == nil && p.skip() != "" {
		err = fmt.Errorf("selector %q: %q is left over", text, p.rest)
	}
	return e, err
}

type parser struct{ rest string }

func (p *parser) skip() string {
	p.rest = strings.TrimLeft(p.rest, " \t")
	return p.rest
}

func (p *parser) takeToken(token string) bool {
	if !strings.HasPrefix(p.skip(), token) {
		return false
	}
	p.rest = p.rest[len(token):]
	return true
}

func (p *parser) or() (expression, error) {
	left, err := p.and()
	for err == nil && p.takeToken("||") {
		a, b := left, expression(nil)
		b, err = p.and()
		left = func(l map[string]string) bool { return a(l) || b(l) }
	}
	return left, err
}

func (p *parser) and() (expression, error) {
	left, err := p.unary()
	for err == nil && p.takeToken("&&") {
		a, b := left, expression(nil)
		b, err = p.unary()
		left = func(l map[string]string) bool { return a(l) && b(l) }
	}
	return left, err
}

func (p *parser) unary() (expression, error) {
	if p.takeToken("!") {
		e, err := p.unary()
		return func(l map[string]string) bool { return !e(l) }, err
	}
	switch {
	case p.takeToken("("):
		e, err := p.or()
		if err == nil && !p.takeToken(")") {
			err = fmt.Errorf("no ) before %q", p.rest)
		}
		return e, err
	case p.takeToken("all()"):
		return func(map[string]string) bool { return true }, nil
	case p.takeToken("has("):
		label := p.label()
		if !p.takeToken(")") {
			return nil, fmt.Errorf("no ) before %q", p.rest)
		}
		return func(l map[string]string) bool { _, has := l[label]; return has }, nil
	}
	return p.comparison()
}

func (p *parser) label() string {
	s := p.skip()
	n := strings.IndexFunc(s, func(r rune) bool {
		return !strings.ContainsRune("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_./-", r)
	})
	if n < 0 {
		n = len(s)
	}
	p.rest = s[n:]
	return s[:n]
}

func (p *parser) comparison() (expression, error) {
	label := p.label()
	switch {
	case p.takeToken("=="):
		return p.compareValue(label, func(v, w string) bool { return v == w })
	case p.takeToken("!="):
		e, err := p.compareValue(label, func(v, w string) bool { return v == w })
		return func(l map[string]string) bool { return !e(l) }, err
	case p.takeToken("contains"):
		return p.compareValue(label, strings.Contains)
	case p.takeToken("starts with"):
		return p.compareValue(label, strings.HasPrefix)
	case p.takeToken("ends with"):
		return p.compareValue(label, strings.HasSuffix)
	case p.takeToken("in"):
		return p.valueSet(label)
	case p.takeToken("not in"):
		e, err := p.valueSet(label)
		return func(l map[string]string) bool { return !e(l) }, err
	}
	return nil, fmt.Errorf("no comparison at %q", p.rest)
}

func (p *parser) compareValue(label string, holds func(value, with string) bool) (expression, error) {
	with, err := p.quotedText()
	return func(l map[string]string) bool { v, has := l[label]; return has && holds(v, with) }, err
}

func (p *parser) valueSet(label string) (expression, error) {
	if !p.takeToken("{") {
		return nil, fmt.Errorf("no { before %q", p.rest)
	}
	var values []string
	for {
		v, err := p.quotedText()
		if err != nil {
			return nil, err
		}
		values = append(values, v)
		if p.takeToken("}") {
			break
		}
		if !p.takeToken(",") {
			return nil, fmt.Errorf("no , before %q", p.rest)
		}
	}
	return func(l map[string]string) bool { v, has := l[label]; return has && slices.Contains(values, v) }, nil
}

func (p *parser) quotedText() (string, error) {
	s := p.skip()
	if s == "" || s[0] != '\'' && s[0] != '"' {
		return "", fmt.Errorf("no quoted text at %q", s)
	}
	end := strings.IndexByte(s[1:], s[0])
	if end < 0 {
		return "", fmt.Errorf("text without end at %q", s)
	}
	p.rest = s[end+2:]
	return s[1 : end+1], nil
}
