"""Renders the chart in deploy/helm with Helm's own library, and checks what comes out.

    python3 tools/chart/check.py [MILLRACE]

For each set of values: `helm lint --strict`, the objects against Kubernetes' schemas (the oldest version that the chart
names, and the newest that is known), and what this chart promises. With a binary, the settings and the environment of each
pod are also given to `millrace config`, and its arguments to the command's `--help`.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

import helm_python
import kubernetes_validate
import yaml

CHART = pathlib.Path(__file__).resolve().parents[2] / "deploy/helm/millrace"
OLDEST = "1.30"
# The operator's own kinds have no schema there.
FOREIGN = {"PodMonitor"}
KEY = {"apiKeySecret": "millrace-keys"}
SERVERS = {"enabled": True, "servers": ["nats://nats:4222", "nats://other:4222"]}
CLUSTER = {"keysSecret": "millrace-keys", "cluster": {**SERVERS, "gatewaysSecret": "gateways"}}
FULL = {
    **KEY,
    "keysSecret": "millrace-key-file",
    "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": [{"name": "registry"}]},
    "model": "hf.co/OWNER/REPOSITORY@v1:Q4_K_M",
    "hub": {"tokenSecret": "hub", "endpoint": "https://hub.example.com", "offline": True},
    "proxy": {"http": "http://proxy:3128", "https": "http://proxy:3128", "exceptions": "nats,.svc"},
    "env": [{"name": "MILLRACE_LOG_FILTER", "value": "debug"}],
    "envFrom": [{"configMapRef": {"name": "more"}}],
    "volumes": [{"name": "models", "persistentVolumeClaim": {"claimName": "models"}}],
    "volumeMounts": [{"name": "models", "mountPath": "/models", "readOnly": True}],
    "podLabels": {"team": "models"},
    "podAnnotations": {"example.com/note": "yes"},
    "priorityClassName": "high",
    "serviceAccountName": "millrace",
    "nodeSelector": {"cpu": "amx"},
    "tolerations": [{"key": "cpu", "operator": "Exists"}],
    "persistence": {"storageClass": "fast"},
    "service": {"sessionAffinity": "ClientIP", "annotations": {"example.com/lb": "internal"}},
    "autoscaling": {"enabled": True},
    "ingress": {"enabled": True, "className": "nginx", "host": "chat.example.com", "tlsSecret": "chat-tls", "annotations": {"example.com/buffering": "off"}},
    "networkPolicy": {"enabled": True, "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "ingress-nginx"}}}]},
    "podMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "settings": {"server": {"drain_timeout_ms": 90500}, "log": {"json": True}},
}
RENDERED = {
    "least": KEY,
    "key file": {"keysSecret": "millrace-keys"},
    "everything": FULL,
    "without volumes": {**KEY, "persistence": {"enabled": False}, "podDisruptionBudget": {"enabled": False}},
    "no pods for now": {**KEY, "replicas": 0},
    "without affinity": {**KEY, "replicas": 3, "service": {"sessionAffinity": "None"}},
    "cluster": {**CLUSTER, "replicas": 3, "model": "qwen3:0.6b"},
    "a prefix and TLS": {
        **KEY,
        "settings": {"server": {"api_prefix": "/llm"}, "listener": {"tls_cert": "/tls/tls.crt", "tls_key": "/tls/tls.key"}},
        "podMonitor": {"enabled": True},
        "volumes": [{"name": "tls", "secret": {"secretName": "tls"}}],
        "volumeMounts": [{"name": "tls", "mountPath": "/tls", "readOnly": True}],
    },
    "metrics of a cluster": {**CLUSTER, "podMonitor": {"enabled": True, "keySecret": "metrics"}},
    "any host, and only each other": {**KEY, "ingress": {"enabled": True}, "networkPolicy": {"enabled": True}},
    "cluster with one gateway": {"keysSecret": "millrace-keys", "cluster": {**SERVERS, "gateways": 1}},
    "cluster with logins": {**CLUSTER, "cluster": {**CLUSTER["cluster"], "nkeySecret": "nkeys", "gateways": 3}},
}
# What is refused, and a word of the reason.
REFUSED = {
    "no key": ({}, "keysSecret"),
    "several pods that do not know each other's streams": ({**KEY, "replicas": 2}, "sessionAffinity"),
    "as many as the autoscaler wants": ({**KEY, "autoscaling": {"enabled": True}}, "sessionAffinity"),
    "a cluster without NATS": ({"keysSecret": "k", "cluster": {"enabled": True}}, "cluster.servers"),
    "a cluster with keys in clear": ({**KEY, "cluster": {"enabled": True, "servers": ["nats://n"]}}, "keysSecret"),
    "gateways without a secret": ({"keysSecret": "k", "cluster": SERVERS}, "cluster.gatewaysSecret"),
    "an autoscaler in a cluster": ({**CLUSTER, "autoscaling": {"enabled": True}}, "autoscaling"),
    "metrics without a key": ({"keysSecret": "k", "podMonitor": {"enabled": True}}, "podMonitor.keySecret"),
    "a certificate without a name": ({**KEY, "ingress": {"enabled": True, "tlsSecret": "tls"}}, "ingress.host"),
    "an unknown value": ({**KEY, "replica": 2}, "replica"),
    "a value of another type": ({**KEY, "replicas": "two"}, "replicas"),
}


def render(values, release="millrace"):
    """The objects, and the notes."""
    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        files = chart.render(values, name=release, namespace="models", is_install=True)
    notes = next(text for name, text in files.items() if name.endswith("NOTES.txt"))
    texts = [text for name, text in files.items() if name.endswith(".yaml")]
    return [item for text in texts for item in yaml.safe_load_all(text) if item], notes


def of_kind(objects, kind):
    return [item for item in objects if item["kind"] == kind]


def role_of(item):
    return item["metadata"]["labels"]["app.kubernetes.io/component"]


def check_pods(case, values, pods):
    """What each pod promises."""
    spec = pods["spec"]["template"]["spec"]
    where = f"{case}: {pods['metadata']['name']}"
    assert spec["enableServiceLinks"] is False, f"{where}: variables of services look like settings"
    assert spec["automountServiceAccountToken"] is False, where
    assert spec["securityContext"]["fsGroupChangePolicy"] == "OnRootMismatch", f"{where}: the prompt cache refuses directories of a group"
    drain = values.get("settings", {}).get("server", {}).get("drain_timeout_ms", 20000)
    assert spec["terminationGracePeriodSeconds"] * 1000 >= 5000 + drain + 20000, f"{where}: killed within the drain"
    (server,) = spec["containers"]
    for name in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert server[name]["timeoutSeconds"] >= 5, f"{where}: {name} fails on a busy machine"
    settings = values.get("settings", {})
    prefix, has_tls = settings.get("server", {}).get("api_prefix", ""), "listener" in settings
    assert server["livenessProbe"]["httpGet"]["path"] == f"{prefix}/health/liveness", f"{where}: probes of another path"
    assert server["readinessProbe"]["httpGet"]["path"] == f"{prefix}/health/readiness", f"{where}: probes of another path"
    assert server["readinessProbe"]["httpGet"]["scheme"] == ("HTTPS" if has_tls else "HTTP"), f"{where}: probes in the clear"
    for container in [server, *spec.get("initContainers", [])]:
        rights = container["securityContext"]
        assert rights["readOnlyRootFilesystem"] and not rights["allowPrivilegeEscalation"], where
        assert {mount["mountPath"] for mount in container["volumeMounts"]} >= {"/data", "/tmp"}, where
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        claims = {claim["metadata"]["name"] for claim in pods["spec"].get("volumeClaimTemplates", [])}
        assert mounted <= claims | {volume["name"] for volume in spec["volumes"]}, f"{where}: a volume is not there"
        names = [variable["name"] for variable in container.get("env", [])]
        assert len(names) == len(set(names)), f"{where}: a variable is set twice"
    if values.get("model"):
        (pull,) = spec["initContainers"]
        assert pull["args"] == ["pull", "--if-absent", values["model"]], f"{where}: no start while the hub is down"
    if role_of(pods) == "engine":
        secrets = [volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume]
        text = yaml.safe_dump(server)
        assert values["keysSecret"] not in secrets and "MILLRACE_API_KEY" not in text, f"{where}: an engine sees keys"
    labels = pods["spec"]["template"]["metadata"]["labels"]
    assert pods["spec"]["selector"]["matchLabels"].items() <= labels.items(), where


def check_objects(case, values, objects):
    """What the objects promise together."""
    sets = of_kind(objects, "StatefulSet")
    roles = ["engine", "gateway"] if values.get("cluster") else ["server"]
    assert sorted(map(role_of, sets)) == roles, f"{case}: {[pods['metadata']['name'] for pods in sets]}"
    for pods in sets:
        check_pods(case, values, pods)
        cluster = values.get("cluster", {})
        has_secret = "MILLRACE_CLUSTER_SECRET_FILE" in str(pods)
        assert has_secret == ("gatewaysSecret" in cluster and role_of(pods) == "gateway"), f"{case}: {role_of(pods)} and the secret"
        volumes = [volume["name"] for volume in pods["spec"]["template"]["spec"]["volumes"]]
        assert has_secret == ("gateways" in volumes), f"{case}: {role_of(pods)} has {volumes}"
        number = cluster.get("gateways", 2) if role_of(pods) == "gateway" else values.get("replicas", 1)
        assert pods["spec"].get("replicas") == (None if "autoscaling" in values else number), f"{case}: {role_of(pods)}"
    services = {service["metadata"]["name"]: service["spec"] for service in of_kind(objects, "Service")}
    headless = {name for name, spec in services.items() if spec.get("clusterIP") == "None"}
    assert {pods["spec"]["serviceName"] for pods in sets} == headless, f"{case}: pods have no names"
    (door,) = [spec for name, spec in services.items() if name not in headless]
    reached = [pods for pods in sets if door["selector"].items() <= pods["spec"]["template"]["metadata"]["labels"].items()]
    assert [role_of(pods) for pods in reached] == [roles[-1]], f"{case}: clients reach other pods"
    for ingress in of_kind(objects, "Ingress"):
        (path,) = ingress["spec"]["rules"][0]["http"]["paths"]
        target = services[path["backend"]["service"]["name"]]
        assert path["backend"]["service"]["port"]["name"] in [port["name"] for port in target["ports"]], f"{case}: a port that is not there"
        assert target is door, f"{case}: the way in leads to {target}"
    for policy in of_kind(objects, "NetworkPolicy"):
        allowed = policy["spec"]["ingress"]
        assert len(allowed) == 1 + bool(values["networkPolicy"].get("from")), f"{case}: {allowed}"
        for pods in sets:
            labels = pods["spec"]["template"]["metadata"]["labels"]
            selectors = [policy["spec"]["podSelector"], allowed[0]["from"][0]["podSelector"]]
            assert all(one["matchLabels"].items() <= labels.items() for one in selectors), f"{case}: {role_of(pods)} is not meant"
    for monitor in of_kind(objects, "PodMonitor"):
        (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
        key = endpoint["authorization"]["credentials"]
        assert (key["name"], key["key"]) in {("millrace-keys", "api-key"), ("metrics", "metrics-key")}, f"{case}: {key}"
        selector = monitor["spec"]["selector"]["matchLabels"].items()
        reached = [role_of(pods) for pods in sets if selector <= pods["spec"]["template"]["metadata"]["labels"].items()]
        assert reached == [roles[-1]], f"{case}: a key is sent to {reached}"
    for kind, name in (("Ingress", "ingress"), ("NetworkPolicy", "networkPolicy")):
        assert len(of_kind(objects, kind)) == bool(values.get(name)), f"{case}: {kind}"
    budgets = of_kind(objects, "PodDisruptionBudget")
    wanted = 0 if "podDisruptionBudget" in values else len(roles)
    assert len(budgets) == wanted, f"{case}: {len(budgets)} budgets"
    if values.get("service", {}).get("sessionAffinity"):
        assert door["sessionAffinity"] == values["service"]["sessionAffinity"], case


def check_schemas(objects):
    for item in objects:
        if item["kind"] in FOREIGN:
            continue
        for version in (OLDEST, kubernetes_validate.latest_version()):
            kubernetes_validate.validate(item, version, strict=True)


def check_settings(case, objects, binary):
    """The pods' settings are ones that the program takes, and its commands have these arguments."""
    (settings,) = of_kind(objects, "ConfigMap")
    for pods in of_kind(objects, "StatefulSet"):
        spec = pods["spec"]["template"]["spec"]
        (server,) = spec["containers"]
        with tempfile.TemporaryDirectory() as folder:
            file = pathlib.Path(folder) / "millrace.yaml"
            file.write_text(settings["data"]["millrace.yaml"])
            variables = {variable["name"]: variable.get("value", "0123456789abcdef0123") for variable in server["env"]}
            # Kubernetes replaces it; the files of Secrets are not here.
            variables = {name: value.replace("$(POD_IP)", "10.0.0.7") for name, value in variables.items()}
            variables |= {"PATH": os.environ["PATH"], "HOME": folder, "MILLRACE_SERVER_BIND": "0.0.0.0:8420"}
            done = subprocess.run([binary, "config", "--config", file], env=variables, text=True, capture_output=True)
            assert done.returncode == 0, f"{case}: {pods['metadata']['name']}: {done.stderr}"
            if spec.get("initContainers"):
                told = subprocess.run([binary, "pull", "--help"], env=variables, text=True, capture_output=True).stdout
                assert "--if-absent" in told, case


def main():
    binary = pathlib.Path(sys.argv[1]).resolve() if len(sys.argv) > 1 else None
    print(f"helm {helm_python.helm_sdk_version()}, schemas of Kubernetes {OLDEST} and {kubernetes_validate.latest_version()}")
    for case, values in RENDERED.items():
        report = helm_python.lint(CHART, values, strict=True)
        found = [message for message in report["messages"] if message["severity"] >= 2]
        assert not found and not report["errors"], f"{case}: {json.dumps(report)}"
        objects, notes = render(values)
        assert "Clients in the cluster: http://millrace-millrace.models.svc:8420" in notes, notes
        check_objects(case, values, objects)
        check_schemas(objects)
        if binary:
            check_settings(case, objects, binary)
        print(f"ok {case}: {', '.join(sorted(item['kind'] for item in objects))}")
    for case, (values, word) in REFUSED.items():
        try:
            render(values)
        except helm_python.HelmError as why:
            assert word in str(why), f"{case}: {why}"
            print(f"ok refused: {case}")
            continue
        raise AssertionError(f"{case}: was rendered")
    print(f"{len(RENDERED) + len(REFUSED)} passed, 0 failed")


if __name__ == "__main__":
    main()
