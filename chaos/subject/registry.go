package subject

import (
	"fmt"
	"slices"
	"strings"
)

// All lists the subjects of the harness: this library first, then the baselines.
func All() []Subject { return append(Ours(), Baselines()...) }

// Ours lists the subjects that are this library: the mutex first, then the other kinds of locks.
func Ours() []Subject {
	return []Subject{Redlock{}, RedlockFair{}, RedlockRW{}, RedlockSemaphore{}, RedlockHandover{}, RedlockElection{}}
}

// IsOurs reports whether it is the name of one of Ours.
func IsOurs(name string) bool {
	return slices.ContainsFunc(Ours(), func(s Subject) bool { return s.Name() == name })
}

// Baselines lists the subjects that are unsafe in some scenario.
func Baselines() []Subject {
	return []Subject{
		SetnxExpire{}, GetSet{}, GetDel{}, Single{}, Watchdog{}, PlainRedlock{}, LateValidity{}, ReaderCounter{}, MajoritySemaphore{},
	}
}

// ByName finds one of All.
func ByName(name string) (Subject, error) {
	var names []string
	for _, s := range All() {
		if s.Name() == name {
			return s, nil
		}
		names = append(names, s.Name())
	}
	return nil, fmt.Errorf("there is no subject %q; there are %s", name, strings.Join(names, ", "))
}

// Describe returns what a subject says about itself in one line: the result of its method About() string, if it has
// one.
func Describe(s Subject) string {
	if d, ok := s.(interface{ About() string }); ok {
		return d.About()
	}
	return ""
}

// Quorum returns on how many of the nodes a subject's token must be for it to own the lock. This is a majority, unless
// the subject has a method Quorum(nodes int) int, as the subjects on one master have.
func Quorum(s Subject, nodes int) int {
	if q, ok := s.(interface{ Quorum(nodes int) int }); ok {
		return q.Quorum(nodes)
	}
	return nodes/2 + 1
}

// Renews reports whether the subject renews a lease until it is released. It asks the subject's method Renews() bool;
// without one the answer is no.
func Renews(s Subject) bool {
	r, ok := s.(interface{ Renews() bool })
	return ok && r.Renews()
}
