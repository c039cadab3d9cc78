// Command kubernetes is a whole Kubernetes in one program: the name it is called by, or else its first argument, picks the part.
//
// It builds from modules alone, so a machine without a container engine has a real control plane, a real node and a real Helm.
package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	_ "time/tzdata" // time zones of CronJobs, on machines that have none

	"github.com/coredns/coredns/core/dnsserver"
	"github.com/coredns/coredns/coremain"
	_ "github.com/coredns/coredns/plugin/bind"
	_ "github.com/coredns/coredns/plugin/errors"
	_ "github.com/coredns/coredns/plugin/kubernetes"
	"github.com/spf13/cobra"
	"go.etcd.io/etcd/server/v3/etcdmain"
	helm "helm.sh/helm/v4/pkg/cmd"
	"k8s.io/component-base/cli"
	kubectl "k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

var parts = map[string]func(){
	"etcd":                    func() { etcdmain.Main(os.Args) },
	"kube-apiserver":          func() { serve(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() { serve(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() { serve(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() { serve(proxy.NewProxyCommand()) },
	"kubelet":                 func() { serve(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 func() { util.CheckErr(cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand())) },
	"coredns":                 serveNames,
	"helm":                    runHelm,
}

func main() {
	name := filepath.Base(os.Args[0])
	if parts[name] == nil && len(os.Args) > 1 {
		name, os.Args = os.Args[1], os.Args[1:]
	}
	run := parts[name]
	if run == nil {
		known := slices.Sorted(maps.Keys(parts))
		fmt.Fprintf(os.Stderr, "kubernetes: no part is called %q; there are %s\n", name, strings.Join(known, ", "))
		os.Exit(2)
	}
	run()
}

func serve(command *cobra.Command) { os.Exit(cli.Run(command)) }

func serveNames() {
	dnsserver.Directives = []string{"bind", "errors", "kubernetes"} // the order in which plugins act
	coremain.Run()
}

func runHelm() {
	command, err := helm.NewRootCmd(os.Stdout, os.Args[1:], helm.SetupLogging)
	if err == nil {
		err = command.Execute()
	}
	var coded helm.CommandError
	switch {
	case errors.As(err, &coded):
		os.Exit(coded.ExitCode)
	case err != nil:
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}
