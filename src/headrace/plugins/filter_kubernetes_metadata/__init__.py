"""The filter `kubernetes_metadata`: what the API server knows about the pod that wrote a record.

    tag, record --> filter.py --> cache.py (hit: at once) --miss--> lookup.py --> api.py --> GET pod, namespace
                                     ^
                                     +---- watch.py: what changes, told by the API server

parameters.py        what is configured
metadata.py          objects of the API -> fields
cache.py             least recently used ones go, old ones too
api.py               requests and watches, over connections of their own
lookup.py            questions about pods: each asked once, however many batches wait for it
watch.py             the caches kept up to date
filter.py            the way of a batch

A batch whose pods are all known goes on at once; another one waits for the answers (`Filter.filter_later`), and only
those behind it under the same tag wait with it.

Different on purpose: nothing is asked while the configuration is checked; a pod that is not found, and an API server
that cannot be reached, are asked again after some seconds and not for every record.

https://github.com/fabric8io/fluent-plugin-kubernetes_metadata_filter
"""

from headrace.plugins.filter_kubernetes_metadata.filter import KubernetesMetadataFilter

__all__ = ["KubernetesMetadataFilter"]
